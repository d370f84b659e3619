package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weir-rls/weir/internal/redistest"
)

// manyRules has 200 limits of 104 rules, with long names and names of other scripts.
func manyRules() string {
	var b strings.Builder
	b.WriteString("domain: shop\ndescriptors:\n  - key: user_id\n    rate_limit: {unit: hour, window_start: first_hit, requests_per_unit: 3, name: burst}\n    descriptors:\n")
	for i := range 92 {
		fmt.Fprintf(&b, "      - key: action\n        value: action-%d\n        rate_limits:\n"+
			"          - {unit: minute, requests_per_unit: %d, name: quick-%d}\n          - {unit: day, requests_per_unit: 100000, algorithm: sliding_log, name: slow-%d}\n", i, i+1, i, i)
	}
	for _, key := range []string{
		strings.Repeat("a_key_without_an_end_", 9), "用户标识", "מזהה_משתמש", "🚀",
	} {
		fmt.Fprintf(&b, "  - key: %s\n    rate_limits:\n      - {unit: minute, requests_per_unit: 7, name: %q}\n      - {unit: week, requests_per_unit: 4294967295, on_store_error: allow}\n",
			key, strings.Repeat("name-", 20))
	}
	for i := range 7 {
		fmt.Fprintf(&b, "  - {key: tried-%d, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n", i)
	}
	return b.String()
}

// anyText are values that clients may send. The last ones have no glyph, or turn the text behind
// them.
var anyText = []string{
	strings.Repeat("x", 120), "שלום עולם 42", "東京都庁舎展望室北東京都庁舎", "👩‍👩‍👧‍👦🚀🇩🇪", "مرحبا", "two\nlines", "\u202Etxt.exe", "42\u200b", " 42 ",
}

// The page holds 200 limits and any text of clients: it fits each window, finds a limit, and stays
// where the reader is while figures change.
func TestPageHoldsManyLimitsAndAnyText(t *testing.T) {
	redis := redistest.Start(t)
	s := serveRules(t, redis.Addr, manyRules())
	for i, text := range anyText {
		for range 4 + i {
			s.hit("user_id", text)
		}
	}
	b := s.open(390, "light")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 820, 1280} {
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.restart(width, scheme)
			b.signIn(token)
			b.await("document.querySelectorAll('#busiest tbody tr').length === 9")
			b.text("#rules-note", "104 rules")
			b.isReadable(name, width)
			b.shoot("many-" + name)
			b.run(chromedp.SendKeys("#filter", "slow-77", chromedp.ByQuery))
			b.await("document.querySelectorAll('#rules tbody tr').length === 1")
			b.text("#rules-note", "1 of 104 rules")
			b.shoot("found-" + name)
		}
	}
	b.restart(820, "light")
	b.signIn(token)
	b.await("document.querySelectorAll('#busiest tbody tr').length === 9")
	for filter, want := range map[string]int{"": 104, "93 per minute": 0, "92 per minute": 1, "shadow": 7, "rules.yaml:488": 1, "用户": 1, "no such rule": 0} {
		b.filter(filter)
		if got := js[int](b, "document.querySelectorAll('#rules tbody tr').length"); got != want {
			t.Errorf("%q finds %d rules, want %d", filter, got, want)
		}
	}
	// A key with any text is looked up as it is.
	for _, text := range anyText {
		b.run(chromedp.Evaluate(fmt.Sprintf("[...document.querySelectorAll('#busiest button')].find((b) => b.dataset.key === 'shop user_id=' + %q).click()", text), nil))
		b.text("#answer .badge", "The next request is denied")
	}
	testStaysInPlace(t, s, b)
	redis.Stop()
	s.hit("user_id", "42")
	b.text("#alert", "The store does not answer.")
	b.shoot("outage-light-820")
	b.text("#alert", "no request has needed the store since")
	for _, width := range []int64{390, 1280} {
		b.run(window(width, "dark"))
		b.shoot(fmt.Sprintf("outage-dark-%d", width))
	}
}

// testStaysInPlace reads a rule in the middle of the page while keys and figures above it change.
func testStaysInPlace(t *testing.T, s *site, b *tab) {
	t.Helper()
	const row = "document.querySelectorAll('#rules tbody tr')[50]"
	b.filter("")
	b.run(chromedp.Evaluate("window.before = "+row+"; before.scrollIntoView({block: 'center'})", nil))
	top := js[float64](b, "before.getBoundingClientRect().top")
	for range 30 {
		s.hit("user_id", "a new busiest key")
	}
	b.text("#busiest tbody tr", "a new busiest key")
	b.await("document.querySelectorAll('#busiest tbody tr').length === 10")
	if now := js[float64](b, "before.getBoundingClientRect().top"); now-top > 2 || top-now > 2 || !js[bool](b, "before === "+row) {
		t.Errorf("the row moved from %v to %v", top, now)
	}
}

// filter replaces the text of the filter.
func (t *tab) filter(text string) {
	t.t.Helper()
	t.run(chromedp.Evaluate(fmt.Sprintf("{ const f = document.getElementById('filter'); f.value = %q; f.dispatchEvent(new Event('input')); }", text), nil))
}
