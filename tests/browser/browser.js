// Headless Chromium that asks nobody outside and leaves nothing behind.
const fs = require('fs');
const os = require('os');
const path = require('path');
const { chromium } = require('playwright-core');

const kFlags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

// Calls `use(context, problems)`; `problems` gathers console errors and requests to other hosts.
async function withBrowser(use) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'lockstep-browser-'));
  const context = await chromium.launchPersistentContext(profile,
    { executablePath: process.env.CHROMIUM, headless: true, args: kFlags });
  const problems = [];
  context.on('page', (page) => {
    page.on('console', (line) => { if (line.type() === 'error' || line.type() === 'warning') problems.push(line.text()); });
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('request', (request) => {
      const { protocol, hostname } = new URL(request.url());
      if (protocol !== 'data:' && hostname !== '127.0.0.1') problems.push(`outside request: ${request.url()}`);
    });
  });
  try {
    await use(context, problems);
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
}

module.exports = { withBrowser };
