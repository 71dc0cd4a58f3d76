// Holds deploy/ to what is published of its formats: every field is known and of its type, and what refers to another file finds it.
//   node check.mjs DEPLOY_DIR            (beside node_modules of package.json)
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import * as keda from '@kubernetes-models/keda/keda.sh/v1alpha1';
import * as operator from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1';
import * as apps from 'kubernetes-models/apps/v1';
import * as autoscaling from 'kubernetes-models/autoscaling/v2';
import * as batch from 'kubernetes-models/batch/v1';
import * as networking from 'kubernetes-models/networking.k8s.io/v1';
import * as policy from 'kubernetes-models/policy/v1';
import * as core from 'kubernetes-models/v1';
import { parseAllDocuments } from 'yaml';

const deploy = process.argv[2];
const models = {
  'apps/v1': apps, 'autoscaling/v2': autoscaling, 'batch/v1': batch, 'keda.sh/v1alpha1': keda, 'monitoring.coreos.com/v1': operator,
  'networking.k8s.io/v1': networking, 'policy/v1': policy, v1: core,
};
const faults = [];
const files = (folder, ending) => readdirSync(join(deploy, folder)).filter((name) => name.endsWith(ending)).map((name) => join(folder, name));
const documents = (file) => parseAllDocuments(readFileSync(join(deploy, file), 'utf8')).map((document) => {
  for (const error of document.errors) faults.push(`${file}: ${error.message}`);
  return document.toJS();
});

// The models' validators let unknown fields pass without a look: so whatever they did not look at is unknown.
function watched(value, path, seen, all) {
  if (typeof value !== 'object' || value === null) return value;
  const copy = Array.isArray(value) ? [] : {};
  for (const key of Object.keys(value)) {
    all.add(`${path}.${key}`);
    copy[key] = watched(value[key], `${path}.${key}`, seen, all);
  }
  return new Proxy(copy, {
    get(target, key) {
      if (typeof key === 'string') seen.add(`${path}.${key}`);
      return target[key];
    },
  });
}
export function faultsOf(Model, object) {
  const [seen, all] = [new Set(Object.keys(object).map((key) => `.${key}`)), new Set()];
  const copy = watched(object, '', seen, all);
  const model = new Model({});
  for (const key of Object.keys(object)) model[key] = copy[key];
  try {
    model.validate();
  } catch (error) {
    return [error.message];
  }
  return [...all].filter((path) => !seen.has(path)).map((path) => `${path} is not known`);
}

// This test itself: a wrong type and a misspelt field are found.
const trial = (container) => faultsOf(core.Pod, { metadata: { name: 'a' }, spec: { containers: [{ name: 'a', ...container }] } }).length;
if (trial({ image: 'b' }) !== 0 || trial({ imagge: 'b' }) !== 1 || trial({ ports: [{ containerPort: 'x' }] }) !== 1) {
  throw new Error('the schemas do not find what they should');
}

for (const file of files('kubernetes', '.yaml')) {
  for (const object of documents(file)) {
    const Model = models[object.apiVersion]?.[object.kind];
    if (!Model) faults.push(`${file}: no schema of ${object.apiVersion} ${object.kind}`);
    else faults.push(...faultsOf(Model, object).map((fault) => `${file} ${object.metadata.name}: ${fault}`));
    const pod = object.spec?.template?.spec;
    if (!pod) continue;
    if (pod.securityContext?.seccompProfile?.type !== 'RuntimeDefault' || !pod.securityContext?.runAsNonRoot) faults.push(`${file}: the pod is not confined`);
    for (const { securityContext: context } of pod.containers) {
      if (context?.allowPrivilegeEscalation !== false || !context?.readOnlyRootFilesystem || !context?.capabilities?.drop?.includes('ALL')) {
        faults.push(`${file}: a container is not confined`);
      }
    }
  }
}
// Knative has no schema in npm: what is Kubernetes' in it is held to that, the rest by name.
for (const file of files('cloudrun', '.yaml')) {
  for (const object of documents(file)) {
    const task = object.kind === 'Job' ? object.spec.template.spec : object.spec;
    const { containers, serviceAccountName, volumes, maxRetries, timeoutSeconds, ...other } = task.template.spec;
    if (object.kind !== 'Job' && (maxRetries ?? timeoutSeconds) !== undefined) faults.push(`${file}: of a Job alone`);
    for (const field of Object.keys(other)) faults.push(`${file}: .template.spec.${field} is not known`);
    // A secret as a volume has its secretName, and a probe's port may be left out of a sidecar.
    const pod = { containers: containers.map((container, i) => ({ name: `c${i}`, ...container })), serviceAccountName, ...(volumes && { volumes }) };
    faults.push(...faultsOf(core.Pod, { metadata: { name: 'pod' }, spec: pod }).map((fault) => `${file}: ${fault}`));
    if (object.kind === 'Service') {
      const notes = task.template.metadata.annotations;
      if (notes['run.googleapis.com/cpu-throttling'] !== 'false' || Number(notes['autoscaling.knative.dev/minScale']) < 1) faults.push(`${file}: it would be put to sleep`);
      const depends = Object.keys(JSON.parse(notes['run.googleapis.com/container-dependencies'] ?? '{}'));
      for (const name of depends) if (!containers.some((container) => container.name === name)) faults.push(`${file}: there is no container ${name}`);
    }
  }
}
// Alert policies, by the declaration of Cloud Monitoring's own client.
const require = createRequire(import.meta.url);
const protobuf = require('protobufjs');
const root = protobuf.Root.fromJSON(require('@google-cloud/monitoring/build/protos/protos.json'));
root.resolveAll();
function compare(value, type, path) {
  for (const [key, part] of Object.entries(value)) {
    const field = type.fields[key];
    const at = `${path}.${key}`;
    if (!field) {
      faults.push(`${at} is not known`);
      continue;
    }
    for (const one of field.map ? [] : field.repeated ? part : [part]) {
      const resolved = field.resolvedType;
      const name = resolved?.fullName ?? `.${field.type}`;
      const fits =
        name === '.google.protobuf.Duration' ? /^\d+s$/.test(one)
        : name === '.google.protobuf.BoolValue' || name === '.bool' ? typeof one === 'boolean'
        : name === '.string' ? typeof one === 'string'
        : resolved instanceof protobuf.Enum ? one in resolved.values
        : resolved ? typeof one === 'object'
        : typeof one === 'number';
      if (!fits) faults.push(`${at}: ${JSON.stringify(one)} is no ${name}`);
      else if (resolved instanceof protobuf.Type && typeof one === 'object') compare(one, resolved, at);
    }
  }
}
const before = faults.length;
compare({ displayname: 'x', combiner: 'XOR' }, root.lookupType('google.monitoring.v3.AlertPolicy'), 'trial');
if (faults.splice(before).length !== 2) throw new Error('the declaration does not find what it should');
const policies = files('google-cloud/alerts', '.json');
for (const file of policies) compare(JSON.parse(readFileSync(join(deploy, file), 'utf8')), root.lookupType('google.monitoring.v3.AlertPolicy'), file);

for (const fault of faults) console.log(fault);
console.log(`${files('kubernetes', '.yaml').length} files for Kubernetes, ${files('cloudrun', '.yaml').length} for Cloud Run, ${policies.length} alert policies: ${faults.length} faults`);
process.exit(faults.length > 0 ? 1 : 0);
