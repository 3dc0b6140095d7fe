"""The browser's ledger in a real browser: charges stay, two tabs cannot both spend the last of a budget."""

import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import palmatch.device

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SPEND = """async ([name, lifetime, units]) => {
  const { openLedger, BudgetExhausted } = await import("/device.mjs");
  const ledger = await openLedger(name, lifetime);
  let paid = 0;
  try {
    for (;;) { await ledger.charge(units, "game", "report", { report: String(paid) }); paid += units; }
  } catch (error) {
    if (!(error instanceof BudgetExhausted)) throw error;
  }
  return [paid, await ledger.remaining(), await ledger.kept("report")];
}"""


class Quiet(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    folder = Path(palmatch.device.__file__).parent
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/device.mjs"
        server.shutdown()


@pytest.fixture
def browser(tmp_path):
    with sync_api.sync_playwright() as play:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
        context = play.chromium.launch_persistent_context(str(tmp_path / "profile"), **options)
        yield context
        context.close()


def test_two_tabs_together_spend_a_budget_once(browser, address):
    """Both run at the same time: each page starts its own loop, and only then are the results awaited."""
    tabs = [browser.new_page(), browser.new_page()]
    for tab in tabs:
        tab.goto(address)
        tab.evaluate(f"() => {{ window.spent = ({SPEND})(['alice', 60, 1]); }}")
    ends = [tab.evaluate("() => window.spent") for tab in tabs]
    assert sum(paid for paid, _, _ in ends) == 60
    assert [left for _, left, _ in ends] == [0, 0]


def test_a_charge_and_its_report_are_there_after_a_reload_and_a_larger_limit_gives_nothing(browser, address):
    tab = browser.new_page()
    tab.goto(address)
    assert tab.evaluate(SPEND, ["bob", 7, 3]) == [6, 1, "3"]
    tab.reload()
    assert tab.evaluate(SPEND, ["bob", 1000, 3]) == [0, 1, "3"]


def test_a_charge_is_paid_only_when_the_browser_has_it_on_the_disk(browser, address):
    """The browser is asked to sync, and no receipt is given while its transaction is still open."""
    tab = browser.new_page()
    tab.goto(address)
    found = tab.evaluate("""async () => {
      const { openLedger } = await import("/device.mjs");
      const ledger = await openLedger("dave", 5);
      const begin = IDBDatabase.prototype.transaction, durabilities = new Set();
      let rounds = 0, open = true, told;
      const held = new Promise((resolve) => (told = resolve));
      // A transaction that is asked for one thing after the other stays open; after a hundred the charge was long put.
      IDBDatabase.prototype.transaction = function (...words) {
        const made = begin.apply(this, words);
        durabilities.add(made.durability);
        const ask = () => {
          if (++rounds === 100) told();
          if (open) made.objectStore("ledger").get("state").onsuccess = ask;
        };
        ask();
        return made;
      };
      let paid = false;
      const charge = ledger.charge(2, "game", "report").then(() => (paid = true));
      await held;
      const early = paid;
      open = false;
      await charge;
      return [early, paid, [...durabilities], await ledger.remaining()];
    }""")
    assert found == [False, True, ["strict"], 3]


def test_another_partition_is_refused_and_a_failed_charge_keeps_nothing(browser, address):
    tab = browser.new_page()
    tab.goto(address)
    found = tab.evaluate("""async () => {
      const { openLedger } = await import("/device.mjs");
      const ledger = await openLedger("carol", 5);
      await ledger.pin("partition", "one");
      const refused = await ledger.pin("partition", "two").catch((error) => error.code);
      const failed = await ledger.charge(6, "game", "report", { report: "1" }).catch((error) => error.name);
      return [refused, failed, await ledger.kept("report"), await ledger.remaining()];
    }""")
    assert found == ["partition", "BudgetExhausted", None, 5]
