// usage: look.js URL NAME TEXT…: the page shows every text within 10 s, and no error.
const path = require('path');
const { withBrowser } = require('./browser.js');

const [url, name, ...texts] = process.argv.slice(2);

withBrowser(async (context, problems) => {
  const page = await context.newPage();
  await page.setViewportSize({ width: 1200, height: 900 });
  await page.goto(url);
  for (const text of texts) await page.getByText(text).first().waitFor({ timeout: 10000 });
  if (process.env.LOCKSTEP_SHOTS) {
    await page.waitForTimeout(1500);  // for the eye only: charts take their width
    await page.screenshot({ path: path.join(process.env.LOCKSTEP_SHOTS, `${name}.png`), fullPage: true });
  }
  if (problems.length) throw new Error(problems.join('\n'));
}).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
