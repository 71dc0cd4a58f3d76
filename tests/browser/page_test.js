// The page over documents from files: what it shows, that it follows changes by itself, that it can be
// used by keyboard and read by a screen reader, at phone width, light and dark.
// usage: page_test.js SERVE_STATUS_DOCUMENT
const assert = require('assert');
const { spawn } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { withBrowser } = require('./browser.js');

const program = process.argv[2];
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lockstep-page-'));
const shots = process.env.LOCKSTEP_SHOTS;

// Times in a document are relative to this moment; the page must see them as if they were now.
function place(name, change = () => {}) {
  const document = JSON.parse(fs.readFileSync(path.join(__dirname, 'documents', name)));
  const shift = Date.now() - Date.parse('2026-01-01T09:30:00Z');
  const walk = (part) => {
    for (const [key, value] of Object.entries(part)) {
      if (value && typeof value === 'object') walk(value);
      else if (typeof value === 'string' && /^20\d\d-\d\d-\d\dT/.test(value)) part[key] = new Date(Date.parse(value) + shift).toISOString();
    }
  };
  walk(document);
  change(document);
  const file = path.join(folder, name);
  fs.writeFileSync(`${file}.new`, JSON.stringify(document));
  fs.renameSync(`${file}.new`, file);
  return file;
}

// They end with this test, whatever becomes of it.
const servers = [];
const endServers = () => servers.forEach((server) => server.kill('SIGKILL'));
process.on('exit', endServers);

function serve(file, ...flags) {
  const server = spawn(program, [...flags, file], { stdio: ['ignore', 'pipe', 'inherit'] });
  servers.push(server);
  return new Promise((done, failed) => {
    server.stdout.once('data', (text) => done({ url: String(text).trim(), server }));
    server.once('exit', () => failed(new Error('serve-status-document ended')));
  });
}

// Of a page, or of a part of it.
async function shoot(seen, name) {
  if (shots) await seen.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
}

async function open(context, url, { width = 1200, scheme = 'light' } = {}) {
  const page = await context.newPage();
  await page.setViewportSize({ width, height: 900 });
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(url);
  await page.getByRole('heading', { level: 2 }).first().waitFor();
  return page;
}

// Fifty poison keys and more, and what else may be told at the same time.
function many() {
  return place('runner.json', (document) => {
    const [group, other] = document.groups;
    const key = group.parked_keys[0], letter = group.dead_letters[0];
    group.parked_keys = Array.from({ length: 20 }, (_, i) => ({ ...key, key: `Video/poison-${i}`, dead_letter: 100 + i }));
    group.parked_keys_total = 50;
    group.dead_letters_open = 61;
    group.dead_letters = Array.from({ length: 49 }, (_, i) => ({ ...letter, id: 100 + i, key: `Video/poison-${i}`, event_id: letter.event_id.slice(0, -2) + String(10 + i) }));
    group.dead_letters[0].event_type = '<b id="hurt">';
    group.dead_letters.push({ ...letter, id: 39, event_id: null, key: null, code: 'EVENT.ATTRIBUTE_MISSING', reason: 'the message has no event_id attribute' });
    group.dead_causes[0].count = 60;
    group.lanes = group.lanes.map((lane) => ({ ...lane, state: 'stuck', queued: 7, oldest_ms: 131000, last_error: 'canceling statement due to lock timeout (55P03)' }));
    for (const one of [group, other]) Object.assign(one, { heartbeat_age_ms: 90000 });
    other.counters.went_back = 3;
    other.verify = [{ backfill: 'videos', projection: 'videos', arguments: "--declaration 'v.yaml'", differences: { missing: 2 }, rows: 100 }];
    document.reasons = ['lane 0 of group video-feed has committed nothing for 2m10s while it has work'];
  });
}

// An hour of history, as the server keeps it: coarse, and fine at the end.
function hour() {
  return place('runner.json', (document) => {
    const at = [], lag = [], rate = [];
    for (let ago = 3585; ago >= 0; ago -= ago > 300 ? 15 : 2) {
      at.push(Date.now() - ago * 1000);
      lag.push(ago > 1140 ? 90 + (ago % 60) : Math.max(131000, 420000 - (1140 - ago) * 400));
      rate.push(ago > 1140 ? 220 : 410);
    }
    document.history = { span_ms: 3600000, at, groups: { 'video-feed': { lag_ms: lag, rate } } };
  });
}

// WCAG's contrast of an element's text against the first opaque ground behind it.
const contrastOf = (element) => {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let ground = element;
  while (ground && (parse(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
  const a = light(parse(getComputedStyle(element).color));
  const b = light(parse(getComputedStyle(ground ?? document.body).backgroundColor));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};

const cases = {
  async 'a parked key is found with its reason and what to type'(context, url) {
    const page = await open(context, url);
    const note = page.getByRole('article').filter({ hasText: '7 keys of group video-feed are parked' });
    await note.getByText('A dead letter is in the way, EVENT.MAPPING_FAILED: 1; A version has not arrived: 1; not listed here: 5.').waitFor();
    await note.getByText('One by one (2)').click();
    await note.getByText('Key Video/0b2f6a1e-8a44-4d0e-9f0a-2f7f4c1d9a10 of group video-feed is parked').click();
    await note.getByText('field title: not valid UTF-8').waitFor();
    const steps = note.locator('details.one').first().getByRole('listitem');
    assert.deepEqual(await steps.evaluateAll((all) => all.map((step) => step.querySelector('p').textContent)), [
      'See the event and why it failed', 'Once the cause is mended: apply it, and then what waits behind it',
      'Or give it up: what waits behind it is applied without it']);
    assert.deepEqual(await steps.locator('code').allTextContents(), ['show 41 --group \'video-feed\'',
      'replay 41 --group \'video-feed\' --reason \'why it works now\'', 'discard 41 --group \'video-feed\' --reason \'why it is not needed\'']
      .map((rest) => `lockstepctl --config /etc/lockstep/runner.yaml dead-letters ${rest}`));
    assert.equal(await page.title(), `(${await page.getByRole('article').count()}) Lockstep runner`);
    await shoot(page, 'runner-open');
    await page.waitForResponse(/api\/status/);  // what was opened stays open
    assert.ok(await steps.first().isVisible());
  },
  async 'fifty faults leave the numbers on the first screen, wide or narrow, light or dark'(context, url) {
    many();
    for (const scheme of ['light', 'dark']) {
      for (const [width, height] of [[1200, 900], [390, 844]]) {
        const page = await open(context, url, { width, scheme });
        await page.setViewportSize({ width, height });
        await page.getByText('50 keys of group video-feed are parked').first().waitFor();
        const bottom = await page.getByRole('navigation', { name: 'Groups and outboxes' }).evaluate((nav) => nav.getBoundingClientRect().bottom);
        assert.ok(bottom < height / 2, `the numbers end at ${bottom} of ${height}`);
        const attention = await page.getByRole('region', { name: 'What needs attention' }).evaluate((card) => card.getBoundingClientRect().height);
        assert.ok(attention < (width > 1000 ? 700 : 1200), `what needs attention is ${attention} px high at ${width}`);
        const whole = await page.evaluate(() => document.documentElement.scrollHeight);
        assert.ok(whole < (width > 1000 ? 3600 : 8000), `the page is ${whole} px high at ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
        await shoot(page, `many-${scheme}-${width}`);
        await page.close();
      }
    }
    place('runner.json');
  },
  async 'nothing to tell is said, with its numbers'(context, url) {
    place('runner.json', (document) => {
      document.groups = [document.groups[1]];
      Object.assign(document, { ready: true, reasons: [] });
    });
    for (const [width, scheme] of [[1200, 'light'], [390, 'dark']]) {
      const page = await open(context, url, { width, scheme });
      await page.getByText('Nothing. Everything that arrives is being worked on.').waitFor();
      assert.deepEqual(await page.getByRole('navigation', { name: 'Groups and outboxes' }).getByRole('listitem').allTextContents(), ['search-index quiet caught up']);
      await shoot(page, `none-${scheme}-${width}`);
      await page.close();
    }
    place('runner.json');
  },
  async 'dead letters are grouped by cause and filtered, and show no payload'(context, url) {
    many();
    const page = await open(context, url);
    await page.getByText('50 keys of group video-feed are parked').first().waitFor();
    const table = page.getByRole('table', { name: 'Messages that could not be applied' });
    const rows = async () => (await table.getByRole('row').count()) - 1;
    assert.equal(await rows(), 5);
    await page.getByRole('button', { name: 'Show all 50' }).click();
    assert.equal(await rows(), 50);
    const cause = page.getByRole('list', { name: 'By cause' }).getByRole('button', { name: /no event_id/ });
    await cause.click();
    assert.equal(await rows(), 1);
    assert.equal(await cause.getAttribute('aria-pressed'), 'true');
    await cause.click();
    await page.getByLabel('Filter').fill('poison-7 mapping');
    assert.equal(await rows(), 1);
    await page.getByText('1 of the newest 50 of 61.').waitFor();
    await page.waitForResponse(/api\/status/);
    assert.equal(await rows(), 1, 'the filter stays while the page follows');
    await page.getByLabel('Filter').fill('<b id="hurt">');
    assert.equal(await rows(), 1, 'what others wrote is text');
    assert.equal(await page.locator('#hurt').count(), 0);
    await shoot(page, 'dead-letters');
    place('runner.json');
  },
  async 'an hour of lag is drawn, with its values where the pointer is and marks of what was done'(context, url) {
    hour();
    const page = await open(context, url);
    const chart = page.getByRole('img', { name: /^Lag, last 60 minutes/ }).first();
    await chart.waitFor();
    assert.match(await chart.getAttribute('aria-label'), /highest 7 min.* Marked: feed-7c9f:1 began, version 0.1.0, 28 min ago; rebuild by maria: column added, 19 min ago\./);
    assert.equal(await chart.locator('.mark').count(), 2);
    await chart.scrollIntoViewIfNeeded();
    const mark = await chart.locator('.mark line').nth(1).boundingBox();
    await page.mouse.move(mark.x, mark.y + 20);
    const tag = chart.locator('text.value');
    await tag.waitFor();
    assert.match(await tag.textContent(), /^\d\d:\d\d:\d\d UTC {2}\S+/);
    await page.getByText(/^19 min ago: .* · rebuild by maria: column added$/).waitFor();
    await shoot(page, 'hour-light');
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.waitForResponse(/api\/status/);
    await shoot(page, 'hour-dark-390');
    place('runner.json');
  },
  async 'where an event or a key is, is asked in a box'(context, url) {
    const page = await open(context, url);
    const asked = [];
    const id = '018f3c1e-0000-7000-8000-0000000000aa', at = new Date(Date.now() - 60000).toISOString();
    await page.route('**/api/trace?*', (route) => {
      const query = new URL(route.request().url()).searchParams;
      asked.push(String(query));
      if (query.has('event')) return route.fulfill({ json: { event_id: query.get('event'), aggregate: null, version: null, message_id: null, groups: [{ group: 'video-feed', fate: null, verdict: 'not received', reason: null }] } });
      return route.fulfill({ json: { key: query.get('key'), groups: [{ group: 'video-feed', keys: [{ aggregate: "video/it's", settled_version: 6 }],
        parked: [{ event_id: id, version: 8, event_type: 'VideoUpdated', parked_at: at, reason: 'poison' }],
        dead: [{ id: 9, event_id: null, version: 7, event_type: '<b id="hurt">', state: 'dead', code: 'EVENT.REFUSED', reason: 'too long', dead_at: at, resolved_at: null }] }] } });
    });
    const box = page.getByRole('search').getByLabel('Where is my event?');
    await box.fill("video/it's");
    await box.press('Enter');
    const card = page.getByRole('region', { name: "Key video/it's" });
    await card.getByText("video/it's stands at version 6; 1 event waits; 1 dead letter").waitFor();
    assert.deepEqual(await card.getByRole('row').evaluateAll((all) => all.slice(1).map((row) => [row.cells[0].textContent, row.cells[2].textContent])), [['7', 'dead letters'], ['8', 'parking']]);
    assert.equal(await card.locator('code').first().textContent(), "lockstepctl --config /etc/lockstep/runner.yaml parked show 'video/it'\\''s' --group 'video-feed'");
    assert.equal(await page.locator('#hurt').count(), 0);
    await shoot(page, 'key-light');
    await box.fill(id.toUpperCase());  // an id, of an event or of an aggregate
    await page.getByRole('button', { name: 'Find' }).click();
    const event = page.getByRole('region', { name: `Event ${id}` });
    await event.getByText('As a key:').waitFor();
    assert.deepEqual(asked.slice(1), [`event=${id}`, `key=${id}`]);
    assert.deepEqual(await event.locator('.way b').allTextContents(), ['Inbox', 'Parking', 'Dead letters', 'Row']);
  },
  async 'it follows changes by itself and keeps what the reader opened'(context, url) {
    const page = await open(context, url);
    await page.locator('summary', { hasText: 'Configuration' }).click();
    await page.getByText('postgresql://feed:***@db.internal/feed').waitFor();
    await page.getByText('after a restart: 8').waitFor();
    place('runner.json', (document) => { document.groups[0].dead_letters_open = 4321; });
    await page.getByText('4,321', { exact: true }).waitFor({ timeout: 10000 });
    assert.ok(await page.getByText('postgresql://feed:***@db.internal/feed').isVisible());
    place('runner.json');
  },
  async 'a frozen page asks nothing until the reader goes on'(context, url) {
    const page = await open(context, url);
    await page.getByRole('button', { name: 'Freeze this page' }).click();
    await page.getByText('Frozen', { exact: true }).waitFor();
    let asked = 0;
    page.on('request', () => { ++asked; });
    place('runner.json', (document) => { document.groups[0].dead_letters_open = 8765; });
    await page.waitForTimeout(5000);  // more than two rounds
    assert.equal(asked, 0);
    await page.getByRole('button', { name: 'Follow again' }).click();
    await page.getByText('8,765', { exact: true }).waitFor({ timeout: 10000 });
    place('runner.json');
  },
  async 'no text is too faint and nothing sticks out, light or dark, wide or narrow'(context, url) {
    for (const scheme of ['light', 'dark']) {
      for (const width of [1200, 390, 320]) {
        const page = await open(context, url, { width, scheme });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${over} px too wide at ${width}`);
        for (const selector of ['h1', '.quiet', '.pill.bad', '.pill.good', '.note h3', '.note p', '.tile dt', '.tile.warning dd > span', 'th', 'td', 'a', 'button']) {
          const element = page.locator(`${selector}:visible`).first();
          if (await element.count() === 0) continue;
          const contrast = await element.evaluate(contrastOf);
          assert.ok(contrast >= 4.5, `${selector} has a contrast of ${contrast.toFixed(2)} (${scheme})`);
        }
        await shoot(page, `runner-${scheme}-${width}`);
        await page.close();
      }
    }
  },
  async 'a command is copied by the keyboard, whole, and that is said'(context, url) {
    const page = await open(context, url);
    await page.getByText('One by one (2)').click();
    await page.getByText('Key Video/0b2f6a1e-8a44-4d0e-9f0a-2f7f4c1d9a10 of group video-feed is parked').click();
    const button = page.getByRole('button', { name: /^Copy: .* dead-letters show 41/ });
    const command = (await button.getAttribute('aria-label')).replace('Copy: ', '');
    await button.focus();
    await page.keyboard.press('Enter');
    await page.locator('#announcer', { hasText: /^(Copied|Selected): lockstepctl/ }).waitFor({ state: 'attached' });
    // A browser without a clipboard selects it.
    const selected = await page.evaluate(() => String(getSelection()));
    if (selected) assert.equal(selected, command);
  },
  async 'an event is followed by its link, and what may be copied is a whole command'(context, url) {
    const dead = '018f3c1e-0000-7000-8000-000000000041', parked = '018f3c1e-0000-7000-8000-000000000044';
    const page = await open(context, url);
    let asked = 0;
    await page.route('**/api/trace?*', (route) => {
      ++asked;
      const event = new URL(route.request().url()).searchParams.get('event');
      const at = new Date(Date.now() - 120000).toISOString();
      const group = event === dead
        ? { group: 'video-feed', fate: 'dead', verdict: 'dead letter 41 (dead), EVENT.MAPPING_FAILED', reason: 'field title: not valid UTF-8', published_at: at, received_at: at, dead_at: at, dead_letter: 41 }
        : { group: 'video-feed', fate: 'parked', verdict: 'parked: version 3 is a dead letter', reason: null, received_at: at, parked_at: at };
      route.fulfill({ json: { event_id: event, aggregate: 'Video/0b2f6a1e', version: 3, message_id: '18120', groups: [group, { group: 'search-index', fate: 'applied', verdict: 'applied', reason: null, received_at: at }] } });
    });
    await page.getByRole('link', { name: dead }).click();
    const card = page.getByRole('region', { name: `Event ${dead}` });
    await card.getByText('dead letter 41 (dead), EVENT.MAPPING_FAILED: field title: not valid UTF-8').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'trace');
    assert.equal(await card.locator('code').textContent(), `lockstepctl --config /etc/lockstep/runner.yaml trace ${dead} --source 'postgresql://…'`);
    assert.match(await page.locator('#announcer').textContent(), /^video-feed: dead letter 41/);
    await shoot(page, 'trace-light');
    await card.getByRole('button', { name: 'Look again' }).click();
    await page.waitForFunction(() => document.getElementById('trace').textContent.includes('dead letter 41'));
    await page.getByRole('link', { name: 'v4', exact: true }).click();  // the first of a key that waits
    await page.getByRole('region', { name: `Event ${parked}` }).getByText('parked: version 3 is a dead letter').waitFor();
    assert.equal(asked, 3);
    await page.getByRole('link', { name: 'Close' }).click();
    await page.getByRole('region', { name: /^Event/ }).waitFor({ state: 'detached' });
    // What is no event id gets into no command, whoever sent the link.
    await page.evaluate(() => { location.hash = '#trace=1;rm%20-rf'; });
    await page.waitForTimeout(300);
    assert.equal(await page.getByRole('region', { name: /^Event/ }).count(), 0);
    // A link that was sent to somebody opens the event by itself; a phone shows it whole.
    for (const scheme of ['light', 'dark']) {
      await page.setViewportSize({ width: 390, height: 900 });
      await page.emulateMedia({ colorScheme: scheme });
      await page.goto(`${url}/#trace=${dead}`);
      await page.reload();
      await page.getByRole('region', { name: `Event ${dead}` }).getByText('dead letter 41 (dead)').waitFor();
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${over} px too wide`);
      await shoot(page, `trace-${scheme}-390`);
    }
  },
  async 'each group is in the overview, in a word, with the way to it'(context, url) {
    const page = await open(context, url);
    const overview = page.getByRole('navigation', { name: 'Groups and outboxes' });
    assert.deepEqual(await overview.getByRole('listitem').allTextContents(), ['video-feed stuck 2 min 11 s behind · 7 parked · 3 dead', 'search-index quiet caught up']);
    await overview.getByRole('link', { name: 'search-index' }).click();
    assert.match(page.url(), /#group-search-index$/);
    await page.getByRole('region', { name: 'Group search-index' }).waitFor();
  },
  async 'the keyboard reaches everything and a chart can be read with arrows'(context, url) {
    const page = await open(context, url);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Freeze this page');
    const chart = page.getByRole('img', { name: /^Lag, last/ }).first();
    await chart.focus();
    await page.keyboard.press('Home');
    assert.match(await chart.getAttribute('aria-label'), /ago|now: /);
    for (const [role, name] of [['region', 'What needs attention'], ['region', 'Group video-feed'], ['table', 'Lanes'], ['navigation', /Other views/]]) {
      assert.ok(await page.getByRole(role, { name }).first().count() > 0, `no ${role} ${name}`);
    }
    assert.match(await page.locator('#announcer').textContent(), /^\d+ things need attention: /);
  },
};

const kDead = '019b79a0-0000-7000-8000-0000000000d1', kInDoubt = '019b79a0-0000-7000-8000-0000000000d2';

// /api/sagas, which asks a database, from a file; what was asked for is kept.
async function answerSagas(page, change = () => {}) {
  const asked = [];
  await page.route('**/api/sagas?*', (route) => {
    const query = new URL(route.request().url()).searchParams;
    asked.push(String(query));
    const saga = JSON.parse(fs.readFileSync(place('saga.json', change)));
    if (!query.has('id')) return route.fulfill({ json: { sagas: [saga] } });
    return query.get('id') === saga.id ? route.fulfill({ json: saga }) : route.fulfill({ status: 404, body: `there is no saga ${query.get('id')}\n` });
  });
  return asked;
}

const sagaCases = {
  async 'an orchestrator tells how many sagas there are, and which wait for what'(context, url) {
    const page = await open(context, url);
    const row = page.getByRole('table', { name: 'Sagas by definition' }).getByRole('row').filter({ hasText: 'order' });
    assert.deepEqual(await row.getByRole('cell').allTextContents(), ['order', '1,204', '3', '2', '1', '42/s', '88,801', '120', '7']);
    const waiting = page.getByRole('table', { name: 'Dead and paused sagas' });
    assert.deepEqual(await waiting.getByRole('row').filter({ hasText: kDead }).getByRole('cell').allTextContents(),
      [kDead, 'order', 'dead', 'charge: HTTP.REFUSED the compensation of step charge: 403 <b id="hurt">no such charge</b>', '20 min ago']);
    for (const id of [kInDoubt, kDead]) await page.getByRole('article').filter({ hasText: `Saga ${id}` }).getByText('What to type next').click();
    await page.getByRole('article').filter({ hasText: `Saga ${kInDoubt}` }).getByText(`signal '${kInDoubt}' 'charge' succeeded`).waitFor();
    await page.getByRole('article').filter({ hasText: `Saga ${kDead}` }).getByText(`dead replay '${kDead}' --into-compensation`).waitFor();
    assert.equal(await page.locator('#hurt').count(), 0, 'what others wrote is text');
    // Whoever can't go on by himself comes first.
    assert.deepEqual(await page.getByRole('article').getByRole('heading').evaluateAll((all) => all.map((head) => head.lastChild.data.split(' ').pop())), ['dead', 'paused', 'paused']);
    assert.ok(await page.getByRole('link', { name: 'Sagas as JSON' }).isVisible());
    assert.equal(await page.getByRole('link', { name: 'Offsets', exact: true }).count(), 0);
    await shoot(page, 'orchestrator-light');
  },
  async 'one saga is shown with its steps over time, in bars and in words'(context, url) {
    const page = await open(context, url);
    const asked = await answerSagas(page);
    await page.getByRole('link', { name: kDead }).click();
    const card = page.getByRole('region', { name: `Saga ${kDead}` });
    const bars = (name) => card.getByRole('img', { name: new RegExp(`^${name}: `) });
    await bars('charge').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'saga');
    assert.equal(await page.locator('#announcer').textContent(), `Saga ${kDead} is Failed`);
    assert.equal(await bars('charge').getAttribute('aria-label'),
      'charge: Failed, began after 200 ms, 2 attempts spent, done after 30 s, its undoing failed, 1 attempt to undo it spent');
    assert.equal(await bars('announce').getAttribute('aria-label'), 'announce: Compensated, began after 30 s, done after 100 ms, undone 1 min 38 s after the saga\'s begin');
    assert.equal(await bars('gift').getAttribute('aria-label'), 'gift: Skipped, skipped');
    assert.equal(await bars('ship').getAttribute('aria-label'), 'ship: Ready, not begun');
    const rects = (name) => bars(name).locator('rect').evaluateAll((all) => all.map((rect) => rect.getAttribute('class')));
    assert.deepEqual(await rects('reserve'), ['good']);
    assert.deepEqual(await rects('charge'), ['again', 'again', 'good', 'again undo', 'bad undo']);
    assert.deepEqual(await rects('announce'), ['good', 'undone undo']);
    assert.deepEqual(await rects('approve'), ['bad']);
    assert.deepEqual([...await rects('gift'), ...await rects('ship')], []);
    // Where they stand: the third try of charge lasts from 26 s to 30 s of 120 s.
    const third = await bars('charge').locator('rect').nth(2).evaluate((rect) => [rect.x.baseVal.value, rect.width.baseVal.value].map(Math.round));
    assert.deepEqual(third, [217, 33]);
    assert.equal(await card.locator('code').textContent(), `lockstepctl --database 'postgresql://shop_orchestrator@db.internal/shop' saga show ${kDead} --history`);
    assert.equal(await page.locator('#hurt').count(), 0, 'what others wrote is text');
    await card.getByText('Every change, by whom').click();
    await card.getByRole('table', { name: 'Every change' }).getByText('compensation Succeeded → Compensated').waitFor();
    await shoot(page, 'saga-light');
    const rounds = asked.length;
    await page.waitForRequest(/api\/sagas/);  // it follows by itself, and what was opened stays open
    assert.ok(rounds >= 1 && await card.getByRole('table', { name: 'Every change' }).isVisible());
    await page.getByRole('link', { name: 'All of order' }).click();
    const list = page.getByRole('region', { name: 'Sagas of order' });
    await list.getByRole('link', { name: kDead }).waitFor();
    assert.deepEqual((await list.getByRole('cell').allTextContents()).slice(0, 3), [kDead, 'Failed, dead', 'charge failed']);
    await page.getByRole('table', { name: 'Sagas by definition' }).getByRole('link', { name: '2', exact: true }).click();
    await page.getByRole('region', { name: 'Paused sagas of order' }).getByRole('link', { name: kDead }).waitFor();
    assert.equal(asked.at(-1), 'definition=order&state=Paused&limit=50');
    await page.getByRole('link', { name: 'Close' }).click();
    await page.locator('#saga').waitFor({ state: 'detached' });
    // What is no id and no name is asked of nobody, whoever sent the link.
    for (const hash of ['#saga=1;rm%20-rf', '#sagas=Order%26id=1', '#sagas=order&state=x%26dead=true']) {
      await page.evaluate((text) => { location.hash = text; }, hash);
      await page.waitForTimeout(200);
    }
    assert.deepEqual([...new Set(asked.slice(-2))].pop(), 'definition=order&limit=50', 'a state that is none is left out');
    assert.ok(asked.every((query) => !/rm|Order|x&/.test(query)));
  },
  async 'a saga under way has its step in flight grow, and what is in doubt says so'(context, url) {
    const page = await open(context, url);
    await answerSagas(page, (saga) => {
      Object.assign(saga, { state: 'Paused', error: null, error_code: null, failed_step: null, ended_at: null, dead_at: null, reason: 'step charge is in doubt' });
      saga.steps = [saga.steps[0], { ...saga.steps[1], state: 'InFlight', compensating: false, in_doubt: true, compensation_attempts: 0, completed_at: null, error: null }];
      saga.audit = saga.audit.slice(0, 3);
    });
    await page.goto(`${url}/#saga=${kDead}`);
    await page.reload();
    const charge = page.getByRole('img', { name: /^charge: InFlight, .*in doubt: nobody knows/ });
    await charge.waitFor();
    assert.equal(await charge.locator('rect').getAttribute('class'), 'again', 'not under way: in doubt');
    const end = await charge.locator('rect').evaluate((rect) => Math.round(rect.x.baseVal.value + rect.width.baseVal.value));
    assert.equal(end, 1000, 'up to now');
    // One that is not there is said, and nothing is lost by it.
    await page.goto(`${url}/#saga=${kInDoubt}`);
    await page.getByRole('region', { name: `Saga ${kInDoubt}` }).getByText('there is no saga').waitFor();
  },
  async 'a saga can be read light and dark, on a phone, and its bars stand out'(context, url) {
    for (const scheme of ['light', 'dark']) {
      for (const width of [1200, 390, 320]) {
        const page = await open(context, url, { width, scheme });
        await answerSagas(page);
        await page.goto(`${url}/#saga=${kDead}`);
        await page.reload();
        await page.locator('svg.tries rect.undo').first().waitFor();
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${over} px too wide at ${width}`);
        for (const selector of ['.pill.undone', '.pill.bad', '.pill.warning', '.saga-steps .quiet', '.saga-steps .reason', '.legend li']) {
          const contrast = await page.locator(`${selector}:visible`).first().evaluate(contrastOf);
          assert.ok(contrast >= 4.5, `${selector} has a contrast of ${contrast.toFixed(2)} (${scheme})`);
        }
        const colours = await page.locator('.legend rect').evaluateAll((all) => all.map((rect) => getComputedStyle(rect).fill));
        assert.equal(new Set(colours).size, 5);
        await shoot(page.locator('#saga'), `saga-${scheme}-${width}`);
        await page.close();
      }
    }
  },
};

const consoleCases = {
  async 'the console draws source, topics and groups as one picture'(context, url) {
    const page = await open(context, url);
    const list = (name) => page.getByRole('list', { name, exact: true });
    assert.deepEqual(await list('Sources').locator('b').allTextContents(), ['catalog.video_outbox', 'shop.outbox']);
    assert.deepEqual(await list('Groups').locator('b').allTextContents(), ['video-feed', 'stats', 'orders']);
    await list('Sources').getByText('1,830 pending · oldest 4.2 s · 413/s · 1 dead').waitFor();
    await list('Groups').getByText('2 min 11 s behind · 220/s · 7 parked · 3 dead').waitFor();
    await list('Topics').getByText('NOT_FOUND: topic catalog.deleted does not exist.').waitFor();
    // A line for each way: four from the sources, three to the groups, and the broken ones stand out.
    assert.equal(await page.locator('path.flow').count(), 7);
    assert.equal(await page.locator('path.flow.bad').count(), 2);
    const inside = await page.locator('path.flow').evaluateAll((all) => all.every((path) => path.getTotalLength() > 20));
    assert.ok(inside, 'each leads from box to box');
    assert.match(await page.title(), /^\(5\) Lockstep console$/);
  },
  async 'who does not answer is shown with since when, and what others wrote is text'(context, url) {
    const page = await open(context, url);
    await page.getByText('2 instances do not answer').waitFor();
    const row = page.getByRole('table', { name: 'Instances' }).getByRole('row').filter({ hasText: 'search-5b:1' });
    await row.getByText('does not answer').waitFor();
    assert.match(await row.textContent(), /since 5 min ago.*last seen in its database 5 min ago.*did not answer in time/);
    await page.getByText('postgresql://console@db.internal/engagement: connection to server').waitFor();
    assert.equal(await page.locator('#hurt').count(), 0);
    assert.equal(await page.locator('a[href^="javascript"]').count(), 0, 'an address from a database is no link before it is http');
    assert.equal(await page.getByRole('link', { name: 'http://10.4.0.7:9102' }).getAttribute('href'), 'http://10.4.0.7:9102');
  },
  async 'the console can be read light and dark, on a phone, with words for its lines'(context, url) {
    for (const scheme of ['light', 'dark']) {
      for (const width of [1200, 390, 320]) {
        const page = await open(context, url, { width, scheme });
        await page.getByText('2 instances do not answer').waitFor();
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${over} px too wide at ${width}`);
        assert.equal(await page.getByText('from catalog.events', { exact: true }).first().isVisible(), width < 640);
        for (const selector of ['.box .quiet', '.box b', '.pill.bad', '.reason', '.note h3', 'td']) {
          const contrast = await page.locator(`${selector}:visible`).first().evaluate(contrastOf);
          assert.ok(contrast >= 4.5, `${selector} has a contrast of ${contrast.toFixed(2)} (${scheme})`);
        }
        await shoot(page, `console-${scheme}-${width}`);
        await page.close();
      }
    }
  },
};

// Last, for a refused connection is an error in the console, as it should be.
async function losesItsProcess(context, url, server) {
  const page = await open(context, url);
  const lost = page.getByText(/No answer for/);
  await page.route('**/api/status', (route) => route.abort());
  await lost.waitFor({ timeout: 15000 });
  await page.unroute('**/api/status');
  await lost.waitFor({ state: 'detached', timeout: 15000 });
  server.kill('SIGTERM');
  await lost.waitFor({ timeout: 15000 });
}

withBrowser(async (context, problems) => {
  const { url, server } = await serve(place('runner.json'));
  const other = await serve(place('publisher.json'));
  const sagas = await serve(place('orchestrator.json'));
  const all = await serve(place('console.json'), '--console');
  try {
    const page = await open(context, other.url);
    await page.getByText('Topic catalog.video.deleted.v1 is out of reach').first().waitFor();
    const dead = page.getByRole('article').filter({ hasText: 'is dead (key' });
    await dead.getByText('3 later rows of its key wait behind it').waitFor();
    await dead.getByText('What to type next').click();
    await page.getByText('outbox replay').first().waitFor();
    assert.deepEqual(await page.getByRole('table', { name: 'Topics' }).locator('.pill').allTextContents(), ['reached', 'out of reach', 'nothing sent yet']);
    await page.getByRole('link', { name: '018f3c1e-0000-7000-8000-000000005519' }).click();
    const event = page.getByRole('region', { name: 'Event 018f3c1e-0000-7000-8000-000000005519' });
    await event.getByText("lockstepctl trace 018f3c1e-0000-7000-8000-000000005519 --source 'postgresql://catalog@db.internal/catalog'").waitFor();
    await shoot(page, 'publisher-light');
    console.log('ok: a publisher shows its topics and dead rows');
    for (const [name, run] of Object.entries(cases)) {
      await run(context, url);
      console.log(`ok: ${name}`);
    }
    for (const [name, run] of Object.entries(sagaCases)) {
      await run(context, sagas.url);
      console.log(`ok: ${name}`);
    }
    for (const [name, run] of Object.entries(consoleCases)) {
      await run(context, all.url);
      console.log(`ok: ${name}`);
    }
    // The browser tells of the saga that is not there, as it should.
    assert.deepEqual(problems.filter((line) => !/status of 404/.test(line)), [], 'the console is clean and nothing outside is asked');
    await losesItsProcess(context, url, server);
    console.log('ok: a lost process is told, and that it is back');
  } finally {
    endServers();
    fs.rmSync(folder, { recursive: true, force: true });
  }
}).catch((error) => {
  console.error(error);
  process.exit(1);
});
