package page

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

func TestPageNeedsAToken(t *testing.T) {
	s := serve(t, "")
	b := s.open(1280, "light")
	b.signIn("a-token-that-is-not-valid")
	b.text("#alert", "The token is not valid.")
	b.signIn(token)
	b.text("#tiles", "memory ok")
	b.run(chromedp.Reload())
	b.text("#tiles", "memory ok") // the tab keeps the token
	b.run(chromedp.Click("#sign-out", chromedp.ByQuery))
	b.await("!document.getElementById('sign-in').hidden && document.getElementById('dashboard').hidden")
	b.run(chromedp.Reload())
	b.await("!document.getElementById('sign-in').hidden")
	if shown := js[string](b, "document.body.innerText"); strings.Contains(shown, "user_id") {
		t.Errorf("a page without a token shows rules: %s", shown)
	}
	b.signIn(token)
	b.await("document.getElementById('domain').value === 'shop'")
	b.lookUp("user_id=42")
	b.run(chromedp.Click("#answer button.danger", chromedp.ByQuery))
	b.await("document.getElementById('confirm').open")
	b.run(answerCalls("/v1/status", "async () => new Response('', { status: 401 })"))
	b.await("!document.getElementById('sign-in').hidden && !document.getElementById('confirm').open")
}

// The rates and the busiest keys follow the load without a reload.
func TestPageUpdatesLive(t *testing.T) {
	s := serve(t, "")
	b := s.open(1280, "light")
	b.signIn(token)
	b.text("#rules", "user_id.lease")
	b.text("#rules tbody tr", "3 per hour\nburst · fixed window\n10,000 per day\ndaily · sliding log")
	b.text("#busiest-note", "None")
	for range 9 {
		s.hit("user_id", "alice")
	}
	b.text("#busiest", "user_id=alice")
	b.text("#denied", "user_id=alice")
	b.await("document.querySelector('#denied tbody .number').innerText === '6'")
	b.await("Number(document.querySelector('#rules tbody tr').children[3].innerText) > 0")
	b.run(chromedp.SendKeys("#filter", "health", chromedp.ByQuery))
	b.await("document.querySelectorAll('#rules tbody tr').length === 1")
}

func TestPageExplains(t *testing.T) {
	s := serve(t, "")
	b := s.open(1280, "dark")
	b.signIn(token)
	b.await("document.getElementById('domain').value === 'shop'")
	for _, c := range []struct{ entries, badge, text string }{
		{"user_id=bigco,action=login", "No limit", "rules.yaml:3), which would"},
		{"health=1", "Unlimited", "health=1 matched"},
		{"user_id=42", "One more request is allowed", "rules.yaml:3"},
		{"user_id=42,lease=a", "One more request is allowed", "3 at once"},
		{"nothing", "Not read", "want key=value"},
		{`user_id=a\,b\=c`, "One more request is allowed", "user_id=a,b=c"},
	} {
		b.lookUp(c.entries)
		b.text("#answer .badge", c.badge)
		b.text("#answer", c.text)
	}
	b.run(chromedp.SetValue("#domain", "shpo", chromedp.ByQuery))
	b.lookUp("user_id=42")
	b.text("#answer", "shop")
}

// A key with too many reservations has a wait although hits remain.
func TestPageShowsADenialWithRemainingHits(t *testing.T) {
	s := serve(t, "")
	b := s.open(1280, "light")
	b.signIn(token)
	b.await("document.getElementById('domain').value === 'shop'")
	b.run(answerCalls("/v1/keys/peek", `async (real) => {
		const state = await (await real()).json();
		state.limits[0].state.retry_after = "500ms";
		return Response.json(state);
	}`))
	b.lookUp("user_id=42")
	b.text("#answer .badge", "The next request is denied")
}

// answerCalls makes the page get the results of a function for the calls of a route. The argument
// of the function makes the real call.
func answerCalls(route, function string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`window.fetch = ((fetch) => (url, options) =>
		new URL(url, location).pathname === %q ? (%s)(() => fetch(url, options)) : fetch(url, options))(window.fetch)`, route, function), nil)
}

// The page shows keys as text, never as HTML, because clients choose them.
func TestPageShowsKeysAsText(t *testing.T) {
	s := serve(t, "")
	const evil = `<img src=x onerror="document.title='owned'">`
	s.hit("user_id", evil)
	b := s.open(1280, "light")
	b.signIn(token)
	b.text("#busiest", "<img src")
	b.run(chromedp.Click("#busiest button", chromedp.ByQuery))
	b.text("#answer", "<img src=x")
	if title := js[string](b, "document.title"); strings.Contains(title, "owned") || js[int](b, "document.querySelectorAll('main img').length") != 0 {
		t.Errorf("the page ran what a client sent: %s", title)
	}
}

// A reset asks first. Escape and Cancel change nothing.
func TestPageResetsAfterConfirmation(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, redis.Addr)
	s.deny("user_id", "42")
	b := s.open(390, "light")
	b.signIn(token)
	b.await("document.getElementById('domain').value === 'shop'")
	b.lookUp("user_id=42")
	b.text("#answer .badge", "The next request is denied")
	denied := func() bool { return s.hit("user_id", "42") == http.StatusTooManyRequests }
	for _, cancel := range []chromedp.Action{
		chromedp.KeyEvent(kb.Escape), chromedp.Click("#confirm button[value=cancel]", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter),
	} {
		b.run(chromedp.Click("#answer button.danger", chromedp.ByQuery))
		b.text("#confirm", "user_id=42 in the domain shop")
		b.run(cancel)
		b.await("!document.getElementById('confirm').open")
		if !denied() {
			t.Fatal("the key was reset without a confirmation")
		}
	}
	b.run(chromedp.Click("#answer button.danger", chromedp.ByQuery))
	b.await("document.getElementById('confirm').open")
	b.run(chromedp.Click("#confirm button[value=reset]", chromedp.ByQuery))
	b.text("#answer", "Reset at")
	b.text("#answer", "One more request is allowed")
	if denied() {
		t.Error("denied after the reset")
	}
	b.lookUp("user_id=nobody")
	b.run(chromedp.Click("#answer button.danger", chromedp.ByQuery), chromedp.Click("#confirm button[value=reset]", chromedp.ByQuery))
	b.text("#answer", "nothing is stored for this key")

	s.deny("user_id", "42")
	b.lookUp("user_id=42")
	b.run(answerCalls("/v1/explain", "() => Promise.reject(new TypeError())"))
	b.run(chromedp.Click("#answer button.danger", chromedp.ByQuery), chromedp.Click("#confirm button[value=reset]", chromedp.ByQuery))
	b.text("#answer", "No answer")
	b.text("#answer", "Reset at")
}

// An outage of the store, and one of Weir, look like outages: no old figure passes for a new one.
func TestPageShowsAnOutage(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, redis.Addr)
	b := s.open(1280, "light")
	b.signIn(token)
	b.text("#tiles", "redis ok")
	b.await("document.getElementById('alert').innerText === ''")
	redis.Stop()
	for range 3 {
		s.hit("user_id", "42")
	}
	b.text("#tiles", "redis lost")
	b.text("#alert", "The store does not answer.")
	b.await("document.title.startsWith('LOST')")
	b.lookUp("user_id=42")
	b.text("#answer", "the store failed")
	b.text("#answer", "3 per hour")
	_, _ = s.Stop()
	b.text("#alert", "Weir does not answer.")
	b.text("#tiles", "Weir is unreachable")
	b.await("document.body.classList.contains('stale')")
}

// Every control is reachable by Tab and has a name for a screen reader.
func TestPageWorksWithAKeyboard(t *testing.T) {
	s := serve(t, "")
	s.hit("user_id", "42")
	b := s.open(1280, "light")
	b.signIn(token)
	b.text("#busiest", "user_id=42")
	b.run(chromedp.Evaluate("document.activeElement.blur(); window.scrollTo(0, 0)", nil))
	reached := map[string]bool{}
	for range 30 {
		b.run(chromedp.KeyEvent(kb.Tab))
		reached[js[string](b, "document.activeElement.id || document.activeElement.className || document.activeElement.tagName")] = true
	}
	for _, want := range []string{"skip", "sign-out", "domain", "entries", "primary", "filter", "scroll", "link"} {
		if !reached[want] {
			t.Errorf("Tab does not reach %s: %v", want, reached)
		}
	}
	b.run(chromedp.Focus("#busiest button", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.text("#answer .badge", "One more request is allowed")
	b.await("document.activeElement.id === 'look-up'")
	unnamed := js[[]string](b, `[...document.querySelectorAll("input, button, meter, table, dialog, svg[role=img]")].filter((e) =>
		!(e.labels?.length || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.innerText?.trim() || e.textContent.trim())).map((e) => e.outerHTML)`)
	if len(unnamed) > 0 {
		t.Errorf("without a name: %q", unnamed)
	}
}

// At three widths and in both color schemes the page is no wider than the window, and no text
// touches its background in contrast.
func TestPageFitsEachWindow(t *testing.T) {
	s := serve(t, "")
	for range 9 {
		s.hit("user_id", "42")
		s.hit("user_id", strings.Repeat("a-long-name-", 12))
	}
	b := s.open(390, "light")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 820, 1280} {
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.restart(width, scheme)
			b.await("!document.getElementById('sign-in').hidden")
			b.shoot("signin-" + name)
			b.signIn(token)
			b.text("#busiest", "user_id=42")
			b.lookUp("user_id=" + strings.Repeat("a-long-name-", 12))
			b.text("#answer .badge", "The next request is denied")
			b.isReadable(name, width)
			b.shoot("denied-" + name)
			b.lookUp("user_id=bigco,action=login")
			b.text("#answer .badge", "No limit")
			b.shoot("nolimit-" + name)
		}
	}
}

// contrasts lists the texts whose contrast with their background is below 4.5, as WCAG 2.2 defines
// it for AA.
const contrasts = `(() => {
  const parse = (c) => c.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    let at = e, back = [0, 0, 0, 0];
    while (at && (back = parse(getComputedStyle(at).backgroundColor))[3] === 0) at = at.parentElement;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(e.textContent.trim().slice(0, 40) + ": contrast " + ratio.toFixed(2));
  }
  return low;
})()`

// A process that stops answering without closing its connections is an outage, too.
func TestPageNoticesAFrozenServer(t *testing.T) {
	s := serve(t, "")
	b := open(t, s.admin, 1280, "dark")
	b.signIn(token)
	b.text("#tiles", "memory ok")
	freeze := func(signal syscall.Signal) {
		must.Succeed(t, syscall.Kill(s.PID(), signal))
	}
	freeze(syscall.SIGSTOP)
	defer freeze(syscall.SIGCONT)
	b.text("#alert", "Weir does not answer.")
	freeze(syscall.SIGCONT)
	b.text("#tiles", "memory ok")
	b.await("document.getElementById('alert').innerText === '' && !document.body.classList.contains('stale')")
}

// candidate changes the limit burst from 3 to 2 hits, and adds a limit.
const candidate = `domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: hour, window_start: first_hit, requests_per_unit: 2}
      - {name: daily, unit: day, requests_per_unit: 10000, algorithm: sliding_log}
  - {key: ip, rate_limit: {unit: minute, window_start: first_hit, requests_per_unit: 1}}
  - {key: admin, shadow_mode: true, rate_limit: {unit: hour, window_start: first_hit, requests_per_unit: 0}}
`

// The page compares the candidate rules of a shadow file live, and fits each window. Without a
// shadow file it has no such section.
func TestPageComparesCandidateRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "candidate.yaml")
	write := func(text string) {
		must.Write(t, file, text)
	}
	write("domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: eon, requests_per_unit: 1}}]\n")
	s := serve(t, "", "SHADOW_CONFIG="+file)
	b := s.open(1280, "light")
	b.signIn(token)
	b.text("#shadow-state", "not running")
	b.text("#shadow-warnings", "eon")
	b.shoot("shadow-faults-light-1280")
	write(candidate)
	b.text("#shadow-state", "comparing")
	b.text("#newly-denied-note", "None so far.")
	for range 4 {
		s.hit("user_id", "42")
	}
	for range 3 {
		s.hit("ip", "2001:db8:85a3:8d3:1319:8a2e:370:7348")
		s.hit("admin", "1")
	}
	b.text("#shadow-counts", "Newly denied\n3\n30 % of 10")
	b.text("#shadow-counts", "Denied by both\n1\n10 % of 10")
	b.text("#shadow-limits tbody tr:first-child", "ip")
	b.await("[...document.querySelectorAll('#shadow-limits tbody tr')].map((r) => [...r.querySelectorAll('td')].map((c) => c.innerText).join()).join('|') === '2,0,0|1,0,1|0,0,0'")
	b.text("#shadow-limits", "warming up")
	b.text("#shadow-limits", "shadow mode: 3 requests")
	b.text("#newly-denied", "user_id=42")
	b.run(chromedp.Click("#newly-denied button[data-key='shop user_id=42']", chromedp.ByQuery))
	b.text("#answer .badge", "The next request is denied")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 820, 1280} {
			name := fmt.Sprintf("shadow-%s-%d", scheme, width)
			b := s.open(width, scheme)
			b.signIn(token)
			b.text("#newly-denied", "user_id=42")
			b.isReadable(name, width)
			b.shoot(name)
		}
	}
	must.Succeed(t, os.Remove(file))
	b.text("#shadow-state", "not running")
	b.await("document.getElementById('shadow-diff').hidden")

	plain := serve(t, "")
	b = plain.open(390, "dark")
	b.signIn(token)
	b.text("#tiles", "memory ok")
	if !js[bool](b, "document.getElementById('shadow').hidden") {
		t.Error("a section of candidate rules without a shadow file")
	}
}
