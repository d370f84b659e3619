package page

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

const (
	token = "a-token-of-the-tests-0123456789"
	// The windows of rules begin with the first hit, so that none turns during a test.
	rules = `domain: shop
descriptors:
  - key: user_id
    rate_limits:
      - {name: burst, unit: hour, window_start: first_hit, requests_per_unit: 3}
      - {name: daily, unit: day, requests_per_unit: 10000, algorithm: sliding_log}
    descriptors:
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 3}}
      - {key: action, value: login, rate_limit: {unit: minute, requests_per_unit: 5}}
  - key: user_id
    value: bigco
    descriptors:
      - {key: action, value: reply, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: admin, shadow_mode: true, rate_limit: {unit: hour, window_start: first_hit, requests_per_unit: 1}}
  - {key: health, rate_limit: {unlimited: true}}
`
)

// soon bounds each wait for the page. A busy machine takes long.
const soon = 2 * time.Minute

// A site is a Weir whose admin API a browser can reach.
type site struct {
	*harness.Weir
	t     *testing.T
	admin string // the URL of the page
}

func serve(t *testing.T, redis string, env ...string) *site {
	t.Helper()
	return serveRules(t, redis, rules, env...)
}

func serveRules(t *testing.T, redis, rules string, env ...string) *site {
	t.Helper()
	path := binary(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "tokens": token + "\n"} {
		must.Write(t, filepath.Join(dir, name), text)
	}
	addr := redistest.FreeAddr(t)
	w := harness.MustStartWeir(t, harness.WeirOptions{
		Binary: path, Rules: filepath.Join(dir, "rules.yaml"), Dir: dir, Redis: redis,
		// Weir admits a hit that Redis does not decide in time, and a busy machine takes longer
		// than the default of 15 ms.
		Env: append([]string{"ADMIN_ADDR=" + addr, "ADMIN_TOKEN_FILE=" + filepath.Join(dir, "tokens"), "STORE_TIMEOUT=1m"}, env...),
	})
	return &site{w, t, "http://" + addr + "/"}
}

// hit sends one request for a descriptor with one entry, and returns the status of the response.
func (s *site) hit(key, value string) int {
	s.t.Helper()
	body := fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":%q,"value":%q}]}]}`, key, value)
	r, err := http.Post(s.HTTP+"/json", "application/json", strings.NewReader(body))
	must.Succeed(s.t, err)
	defer r.Body.Close()
	return r.StatusCode
}

// deny sends requests for a descriptor until one is denied. A call of a busy Redis may time out,
// and is then not counted.
func (s *site) deny(key, value string) {
	s.t.Helper()
	for range 1000 {
		if s.hit(key, value) == http.StatusTooManyRequests {
			return
		}
	}
	s.t.Fatal("no request is denied")
}

// open opens the page. Its calls may take long, because a busy machine must not look like an
// outage.
func (s *site) open(width int64, scheme string) *tab {
	s.t.Helper()
	return open(s.t, s.admin, width, scheme, callsLast)
}

// A tab is a page in a browser. Its errors are collected.
type tab struct {
	context.Context
	t      *testing.T
	mu     sync.Mutex
	errors []string
}

// browser is the Chromium of all tests, which it starts once.
var browser = sync.OnceValues(func() (context.Context, error) {
	ctx, _ := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.ExecPath(os.Getenv("CHROMIUM")), chromedp.WSURLReadTimeout(soon))...)
	silent := chromedp.WithErrorf(func(string, ...any) {}) // chromedp reports events that it does not know; actions return their errors
	ctx, _ = chromedp.NewContext(ctx, silent)
	closeBrowser = func() error { return chromedp.Cancel(ctx) }
	return ctx, chromedp.Run(ctx)
})

// closeBrowser ends the Chromium, if a test has started it.
var closeBrowser = func() error { return nil }

// callsLast makes the page wait longer for a call than it does for a user, because a busy machine
// must not look like an outage.
const callsLast = "AbortSignal.timeout = ((timeout) => (ms) => timeout.call(AbortSignal, 20 * ms))(AbortSignal.timeout)"

// open opens a page of a width and a color scheme in a tab with a profile of its own. A script may
// run before those of the page.
func open(t *testing.T, url string, width int64, scheme string, scripts ...string) *tab {
	t.Helper()
	all, err := browser()
	must.Succeed(t, err)
	// A page in a window of its own is visible: a hidden one would not poll.
	executor := cdp.WithExecutor(all, chromedp.FromContext(all).Browser)
	profile, err := target.CreateBrowserContext().Do(executor)
	must.Succeed(t, err)
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(executor)
	must.Succeed(t, err)
	ctx, cancelTime := context.WithTimeout(all, 10*time.Minute)
	ctx, cancelTab := chromedp.NewContext(ctx, chromedp.WithTargetID(id))
	t.Cleanup(func() {
		cancelTab()
		cancelTime()
		_ = target.DisposeBrowserContext(profile).Do(executor)
	})
	b := &tab{Context: ctx, t: t}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				b.errors = append(b.errors, string(e.Args[0].Value))
			}
		}
	})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.errors) > 0 {
			t.Errorf("errors of the page: %q", b.errors)
		}
	})
	b.run(window(width, scheme))
	for _, script := range scripts {
		b.run(chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
			return err
		}))
	}
	b.run(chromedp.Navigate(url))
	return b
}

// window sets the width and the color scheme of a tab.
func window(width int64, scheme string) chromedp.Tasks {
	return chromedp.Tasks{
		emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	}
}

// restart loads the page again, signed out, in a window of another width and color scheme. It
// costs less than another tab.
func (t *tab) restart(width int64, scheme string) {
	t.t.Helper()
	t.run(chromedp.Evaluate("sessionStorage.clear()", nil), window(width, scheme), chromedp.Reload())
}

func (t *tab) run(actions ...chromedp.Action) {
	t.t.Helper()
	must.Succeed(t.t, chromedp.Run(t, actions...))
}

// js returns the value of an expression.
func js[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

// await waits until an expression is true.
func (t *tab) await(expression string) {
	t.t.Helper()
	deadline := time.Now().Add(soon)
	for !js[bool](t, "!!("+expression+")") {
		if time.Now().After(deadline) {
			t.t.Fatalf("still false: %s\n%s", expression, js[string](t, "document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// text waits until an element contains a text.
func (t *tab) text(selector, want string) {
	t.t.Helper()
	t.await(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, want))
}

func (t *tab) signIn(token string) {
	t.t.Helper()
	t.await("!document.getElementById('sign-in').hidden")
	t.run(chromedp.SendKeys("#token", token+"\r", chromedp.ByQuery))
}

func (t *tab) lookUp(entries string) {
	t.t.Helper()
	t.run(chromedp.SetValue("#entries", entries, chromedp.ByQuery), chromedp.SendKeys("#entries", "\r", chromedp.ByQuery))
	t.await("document.querySelector('#answer .badge')")
}

// isReadable checks that the page is not wider than the window, and that each text has enough
// contrast.
func (t *tab) isReadable(name string, width int64) {
	t.t.Helper()
	if wide := js[int](t, "document.documentElement.scrollWidth"); int64(wide) > width {
		t.t.Errorf("%s: the page is %d wide", name, wide)
	}
	for _, low := range js[[]string](t, contrasts) {
		t.t.Errorf("%s: %s", name, low)
	}
}

// shoot writes a screenshot of the whole page if -shots asks for it.
func (t *tab) shoot(name string) {
	t.t.Helper()
	if *shots == "" {
		return
	}
	var image []byte
	t.run(chromedp.FullScreenshot(&image, 100))
	must.Succeed(t.t, os.WriteFile(filepath.Join(*shots, name+".png"), image, 0o644))
}
