// A bill of materials (CycloneDX 1.5) of the programs in a build tree: the Debian packages whose shared libraries they are
// linked with, and those whose headers and static libraries they are compiled from, as dpkg has them.
//   node sbom.mjs BUILD_DIR VERSION >lockstep.cdx.json
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';

const [build, version] = [resolve(process.argv[2]), process.argv[3]];
const run = (program, ...args) =>
  execFileSync(program, args, { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore'] });
const programs = ['lockstep-publisher', 'lockstep-runner', 'lockstep-orchestrator', 'lockstepctl', 'lockstep-emulator'];

// The packages that own these files, and the files that no package owns.
function ownersOf(files) {
  const names = [...new Set(files)];
  const owners = new Map();
  // A file in /usr/lib may be known as one in /lib: they are the same folder.
  const asked = names.flatMap((name) => [name, name.replace(/^\/usr(?=\/lib)/, '')]);
  for (let i = 0; i < asked.length; i += 500) {
    let answer = '';
    try {
      answer = run('dpkg-query', '-S', ...asked.slice(i, i + 500));
    } catch (error) {
      answer = error.stdout; // some are unknown; the others are told
    }
    for (const line of answer.split('\n')) {
      const at = line.lastIndexOf(': ');
      if (at > 0 && !line.startsWith('diversion ')) owners.set(line.slice(at + 2), line.slice(0, at).split(', ')[0]);
    }
  }
  const owner = (name) => owners.get(name) ?? owners.get(name.replace(/^\/usr(?=\/lib)/, ''));
  return {
    packages: [...new Set(names.map(owner).filter(Boolean))],
    strangers: names.filter((name) => !owner(name)),
  };
}

const known = new Map();
const format = '${binary:Package}\t${Package}\t${Version}\t${Architecture}\t${Homepage}\t${source:Package}\n';
for (const line of run('dpkg-query', '-W', '-f', format).trim().split('\n')) {
  const [qualified, name, packageVersion, architecture, homepage, source] = line.split('\t');
  for (const key of [qualified, name]) known.set(key, { name, version: packageVersion, architecture, homepage, source });
}
const release = /^VERSION_ID="?(\d+)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? '';
const refOf = ({ name, version: v, architecture }) =>
  `pkg:deb/debian/${name}@${encodeURIComponent(v)}?arch=${architecture}&distro=debian-${release}`;

function licencesOf(name) {
  const file = `/usr/share/doc/${name}/copyright`;
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  if (!/^Format:/m.test(text)) return []; // not made for machines
  return [...new Set([...text.matchAll(/^License: *(\S.*)$/gm)].map((match) => match[1].trim()))].sort();
}

const linked = new Map();
for (const program of programs) {
  const text = run('ldd', join(build, 'bin', program));
  const { packages, strangers } = ownersOf([...text.matchAll(/(\/\S+) \(0x/g)].map((match) => realpathSync(match[1])));
  if (strangers.length > 0) throw new Error(`${program} is linked with what no Debian package owns: ${strangers}`);
  linked.set(program, packages);
}
// What the compiler has read of the system for what goes into them, as ninja has noted it.
const inputs = new Set(run('ninja', '-C', build, '-t', 'inputs', 'lockstep_installable').split('\n'));
const read = [];
let wanted = false;
for (const line of run('ninja', '-C', build, '-t', 'deps').split('\n')) {
  if (!line.startsWith(' ')) wanted = inputs.has(line.slice(0, line.indexOf(': #')));
  else if (wanted && line.startsWith('    /usr/')) read.push(line);
}
const compiled = ownersOf(read.map((line) => line.trim()).filter(existsSync).map((name) => realpathSync(name))).packages;
if (compiled.length === 0) throw new Error(`${build} does not know what it was compiled from: build it first`);

const components = new Map();
for (const [use, names] of [['linked', [...linked.values()].flat()], ['compiled-from', compiled]]) {
  for (const about of names.map((name) => known.get(name)).filter(Boolean)) {
    const ref = refOf(about);
    if (components.has(ref)) continue;
    const licences = licencesOf(about.name);
    components.set(ref, {
      type: 'library', 'bom-ref': ref, name: about.name, version: about.version, purl: ref,
      scope: use === 'linked' ? 'required' : 'excluded',
      ...(licences.length > 0 && { licenses: licences.map((name) => ({ license: { name } })) }),
      ...(about.homepage && { externalReferences: [{ type: 'website', url: about.homepage }] }),
      properties: [{ name: 'lockstep:use', value: use }, { name: 'debian:source', value: about.source }],
    });
  }
}
const licenses = [{ license: { id: 'Apache-2.0' } }];
const ours = (name) => ({ type: 'application', 'bom-ref': name, name, version, licenses });
const refs = (names) => [...new Set(names.map((name) => known.get(name)).filter(Boolean).map(refOf))].sort();
const body = {
  metadata: {
    timestamp: new Date(Number(process.env.SOURCE_DATE_EPOCH ?? 0) * 1000).toISOString(),
    component: ours('lockstep'),
  },
  components: [...programs.map(ours), ...[...components.values()].sort((a, b) => (a.purl < b.purl ? -1 : 1))],
  dependencies: [
    { ref: 'lockstep', dependsOn: programs },
    ...programs.map((name) => ({ ref: name, dependsOn: refs(linked.get(name)) })),
  ],
};
// The same content has the same serial number.
const hash = createHash('sha256').update(JSON.stringify(body)).digest('hex');
const serial = `${hash.slice(0, 8)}-${hash.slice(8, 12)}-5${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
const bom = { bomFormat: 'CycloneDX', specVersion: '1.5', serialNumber: `urn:uuid:${serial}`, version: 1, ...body };
console.log(JSON.stringify(bom, null, 1));
