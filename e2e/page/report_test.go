package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weir-rls/weir/internal/must"
)

// evilKey is a value that a client chose. The report must show it as text.
const evilKey = `</td><script>document.title='owned'</script><img src=x onerror="document.title='owned'">` + "\u202egnp.\u0000"

const simulatedRules = `domain: shop
descriptors:
  - key: user_id
    rate_limit: {unit: minute, requests_per_unit: 60}
    descriptors:
      - {key: action, value: login, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
      - {key: action, value: reply, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 20, capacity: 5, name: replies}}
  - key: tenant
    rate_limits:
      - {unit: minute, requests_per_unit: 400, name: burst}
      - {unit: day, requests_per_unit: 100000, name: daily}
  - {key: beta, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 3}}
`

// record writes a recording of an hour. One user bursts at the boundaries of minutes, and one has
// an evil name. Two lines cannot be read.
func record(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	must.Succeed(t, err)
	w := bufio.NewWriter(file)
	rnd, start := rand.New(rand.NewPCG(16, 2)), time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	send := func(at time.Time, entries ...[2]string) {
		line, err := json.Marshal(map[string]any{
			"t": at.Format(time.RFC3339Nano), "domain": "shop", "descriptors": [][][2]string{entries}, "allowed": rnd.IntN(50) > 0,
		})
		must.Succeed(t, err)
		fmt.Fprintf(w, "%s\n", line)
	}
	for second := range 3600 {
		at := start.Add(time.Duration(second) * time.Second)
		user := [2]string{"user_id", fmt.Sprint("user-", int(rnd.ExpFloat64()*40))}
		for i := range 2 + rnd.IntN(1+second/600) {
			send(at.Add(time.Duration(i)*100*time.Millisecond), user)
		}
		if rnd.IntN(3) == 0 {
			send(at.Add(300*time.Millisecond), user, [2]string{"action", "reply"})
		}
		if s := second % 120; second > 1200 && second < 2400 && s >= 57 && s <= 62 {
			for i := range 20 {
				send(at.Add(time.Duration(400+i)*time.Millisecond), [2]string{"user_id", "boundary-burster"})
			}
		}
		if second%7 == 0 {
			send(at.Add(500*time.Millisecond), [2]string{"user_id", evilKey}, [2]string{"action", "login"})
			send(at.Add(501*time.Millisecond), [2]string{"tenant", "acme"})
		}
		if second%11 == 0 {
			send(at.Add(600*time.Millisecond), [2]string{"session", strings.Repeat("s", 30)})
			send(at.Add(601*time.Millisecond), [2]string{"beta", strings.Repeat("a-very-long-name-", 12)})
		}
	}
	fmt.Fprint(w, "this line is not JSON\n{\"t\":5}\n")
	must.Succeed(t, w.Flush())
	must.Succeed(t, file.Close())
}

// report runs weir simulate and returns the URL of its report.
func report(t *testing.T, args ...string) string {
	t.Helper()
	path := binary(t)
	dir := t.TempDir()
	page, rules, recording := filepath.Join(dir, "report.html"), filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "recording.ndjson")
	must.Write(t, rules, simulatedRules)
	record(t, recording)
	out, err := exec.CommandContext(t.Context(), path, append([]string{"simulate", "--config", rules, "--html", page, recording}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("weir simulate: %v\n%s", err, out)
	}
	return "file://" + page
}

// At three widths and in both color schemes the report fits its window and has enough contrast. It
// asks for no other file, and shows the keys of clients as text.
func TestReportFitsEachWindow(t *testing.T) {
	url := report(t, "--sample-share", "0.5")
	b := open(t, url, 390, "light")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 820, 1280} {
			name := fmt.Sprintf("report-%s-%d", scheme, width)
			b.run(window(width, scheme), chromedp.Navigate(url))
			b.text("#limits", "user_id.action=login")
			if wide := js[int](b, "document.documentElement.scrollWidth"); int64(wide) > width {
				t.Errorf("%s: the page is %d wide: %q", name, wide, js[[]string](b, fmt.Sprintf(tooWide, width)))
			}
			b.shoot(name)
			b.run(chromedp.Evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)", nil))
			b.isReadable(name+", open tables", width)
			if n := js[int](b, "performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length"); n != 0 {
				t.Errorf("%s: the report asked for %d other files", name, n)
			}
			if title := js[string](b, "document.title"); strings.Contains(title, "owned") || js[int](b, "document.querySelectorAll('img').length") != 0 {
				t.Errorf("%s: the report ran what a client sent: %s", name, title)
			}
		}
	}
}

// tooWide lists the elements that end beyond a width.
const tooWide = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > %d)
  .map((e) => e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 30))`

func TestReportShowsABurstAtABoundary(t *testing.T) {
	b := open(t, report(t), 1280, "light")
	b.text("#limit-3", "boundary-burster")
	b.text("#limit-3 .lines", "a fixed window starts")
	b.await("/fixed_window 1\\d\\d/.test(document.querySelector('#limit-3 .lines').innerText)")
	b.await("/sliding_log 60/.test(document.querySelector('#limit-3 .lines').innerText)")
	b.text("#clients-title", "clients")
	b.text("main", "Skipped in")
	// A tooltip shows the counts at the pointer.
	b.run(chromedp.Evaluate(`(() => {
  const chart = document.querySelector("svg.bars"), box = chart.getBoundingClientRect();
  chart.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + 5}));
})()`, nil))
	b.text("#tip", "allowed")
	b.text("#tip", "2026-11-22 10:0")
	b.run(chromedp.SendKeys("#filter", "tenant", chromedp.ByQuery))
	b.await("[...document.querySelectorAll('#table tbody tr')].filter((r) => !r.hidden).length === 2")
	if unnamed := js[[]string](b, "[...document.querySelectorAll('svg')].filter((s) => !(s.getAttribute('aria-hidden') || s.getAttribute('aria-label'))).map((s) => s.outerHTML)"); len(unnamed) > 0 {
		t.Errorf("pictures without a name: %q", unnamed)
	}
	if broken := js[[]string](b, "[...document.querySelectorAll('a')].filter((a) => !document.querySelector(a.getAttribute('href'))).map((a) => a.outerHTML)"); len(broken) > 0 {
		t.Errorf("links without a target: %q", broken)
	}
}

// Every number is on the page without JavaScript.
func TestReportNeedsNoJavaScript(t *testing.T) {
	url := report(t)
	b := open(t, "about:blank", 390, "dark")
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(url))
	var text string
	b.run(chromedp.Text("main", &text, chromedp.ByQuery))
	for _, want := range []string{"user_id.action=login", "boundary-burster", "funnel", "Keys that are denied most", "hammer"} {
		if !strings.Contains(text, want) {
			t.Errorf("without JavaScript the page lacks %q", want)
		}
	}
	if strings.Contains(text, "Show limits with") {
		t.Error("without JavaScript the page has a filter")
	}
}
