// Every link of the project's pages leads somewhere, to the heading too; docs/README.md lists every page of docs/.
//   node docs_links_test.js SOURCE_DIR
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const root = path.resolve(process.argv[2]);
const pages = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], { cwd: root, encoding: 'utf8' })
  .split('\n').filter((page) => page && fs.existsSync(path.join(root, page)));
if (pages.length < 40) throw new Error(`few pages were found: ${pages}`);

const outsideCode = (text) => text.replace(/^```[^]*?^```$/gm, '').replace(/`[^`\n]*`/g, '');
// As GitHub makes them.
function anchors(page) {
  const seen = new Map();
  const text = fs.readFileSync(path.join(root, page), 'utf8').replace(/^```[^]*?^```$/gm, '');
  return new Set([...text.matchAll(/^#{1,6} +(.*)$/gm)].map(([, heading]) => {
    const words = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const anchor = words.replace(/[^\p{L}\p{N}_ -]/gu, '').replace(/ /g, '-');
    const times = seen.get(anchor) ?? 0;
    seen.set(anchor, times + 1);
    return times ? `${anchor}-${times}` : anchor;
  }));
}

const broken = [];
let links = 0;
const indexed = new Set();
for (const page of pages) {
  for (const [, target] of outsideCode(fs.readFileSync(path.join(root, page), 'utf8')).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    links += 1;
    const [file, anchor] = target.split('#');
    const found = file ? path.normalize(path.join(path.dirname(page), file)).replace(/\/$/, '') : page;
    if (!fs.existsSync(path.join(root, found))) {
      broken.push(`${page}: ${target}: there is no ${found}`);
    } else if (anchor && found.endsWith('.md') && !anchors(found).has(anchor)) {
      broken.push(`${page}: ${target}: ${found} has no such heading`);
    }
    if (page === 'docs/README.md') indexed.add(found);
  }
}
for (const page of pages) {
  if (page !== 'docs/README.md' && path.dirname(page) === 'docs' && !indexed.has(page)) {
    broken.push(`docs/README.md does not lead to ${page}`);
  }
}
if (broken.length) {
  console.error(broken.join('\n'));
  process.exit(1);
}
console.log(`${pages.length} pages, ${links} links`);
