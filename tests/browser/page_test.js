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

function serve(file) {
  const server = spawn(program, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
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
    const note = page.getByRole('article').filter({ hasText: 'is parked' }).first();
    await note.getByText('Video/0b2f6a1e-8a44-4d0e-9f0a-2f7f4c1d9a10').waitFor();
    await note.getByText('field title: not valid UTF-8').waitFor();
    const steps = note.getByRole('listitem');
    assert.deepEqual(await steps.evaluateAll((all) => all.map((step) => step.querySelector('p').textContent)), [
      'See the event and why it failed', 'Once the cause is mended: apply it, and then what waits behind it',
      'Or give it up: what waits behind it is applied without it']);
    assert.deepEqual(await steps.locator('code').allTextContents(), ['show 41 --group \'video-feed\'',
      'replay 41 --group \'video-feed\' --reason \'why it works now\'', 'discard 41 --group \'video-feed\' --reason \'why it is not needed\'']
      .map((rest) => `lockstepctl --config /etc/lockstep/runner.yaml dead-letters ${rest}`));
    assert.equal(await page.title(), `(${await page.getByRole('article').count()}) Lockstep runner`);
    await shoot(page, 'runner-light');
  },
  async 'it follows changes by itself and keeps what the reader opened'(context, url) {
    const page = await open(context, url);
    await page.locator('summary', { hasText: 'Configuration' }).click();
    await page.getByText('postgresql://feed:***@db.internal/feed').waitFor();
    await page.getByText('after a restart: 8').waitFor();
    place('runner.json', (document) => { document.groups[0].dead_letters_open = 4321; });
    await page.getByText('4,321').waitFor({ timeout: 10000 });
    assert.ok(await page.getByText('postgresql://feed:***@db.internal/feed').isVisible());
    place('runner.json');
  },
  async 'a pause stops the updates until the reader goes on'(context, url) {
    const page = await open(context, url);
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Paused', { exact: true }).waitFor();
    let asked = 0;
    page.on('request', () => { ++asked; });
    place('runner.json', (document) => { document.groups[0].dead_letters_open = 8765; });
    await page.waitForTimeout(5000);  // more than two rounds
    assert.equal(asked, 0);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByText('8,765').waitFor({ timeout: 10000 });
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
        ? { group: 'video-feed', fate: 'dead', verdict: 'dead letter 41 (dead), EVENT.MAPPING_FAILED', reason: 'field title: not valid UTF-8', received_at: at, dead_at: at, dead_letter: 41 }
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
    assert.deepEqual(await overview.getByRole('listitem').allTextContents(), ['video-feed stuck 2 min 11 s behind', 'search-index quiet ']);
    await overview.getByRole('link', { name: 'search-index' }).click();
    assert.match(page.url(), /#group-search-index$/);
    await page.getByRole('region', { name: 'Group search-index' }).waitFor();
  },
  async 'the keyboard reaches everything and a chart can be read with arrows'(context, url) {
    const page = await open(context, url);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Pause');
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
  try {
    const page = await open(context, other.url);
    await page.getByText('Topic catalog.video.deleted.v1 is out of reach').first().waitFor();
    await page.getByText('outbox replay').first().waitFor();
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
    // The browser tells of the saga that is not there, as it should.
    assert.deepEqual(problems.filter((line) => !/status of 404/.test(line)), [], 'the console is clean and nothing outside is asked');
    await losesItsProcess(context, url, server);
    console.log('ok: a lost process is told, and that it is back');
  } finally {
    server.kill('SIGKILL');
    other.server.kill('SIGKILL');
    sagas.server.kill('SIGKILL');
    fs.rmSync(folder, { recursive: true, force: true });
  }
}).catch((error) => {
  console.error(error);
  process.exit(1);
});
