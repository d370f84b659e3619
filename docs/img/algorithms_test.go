// Package img holds the pictures of the documentation. This test draws algorithms.svg from the
// algorithms themselves:
//
//	go test ./docs/img -update
package img

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

var update = flag.Bool("update", false, "write algorithms.svg")

const (
	limit  = 5
	window = 10 * time.Second
	length = 40 * time.Second
)

// traffic is one client: five requests before the end of a window, five after it, then one request
// each second.
func traffic() (at []time.Duration) {
	for i := range 5 {
		at = append(at, 7*time.Second+time.Duration(i)*600*time.Millisecond)
	}
	for i := range 5 {
		at = append(at, 10*time.Second+time.Duration(i)*600*time.Millisecond)
	}
	for t := 20 * time.Second; t < length; t += time.Second {
		at = append(at, t)
	}
	return at
}

// A request is one of the traffic, and whether the algorithm admits it.
type request struct {
	at       time.Duration
	admitted bool
}

func simulate(t *testing.T, algorithm string) []request {
	t.Helper()
	l, err := limiters.NewLimit(limiters.Spec{Algorithm: algorithm, Max: limit, Window: window})
	must.Succeed(t, err)
	store := memstore.New(memstore.Options{})
	var all []request
	for _, at := range traffic() {
		verdicts := make([]limiters.Verdict, 1)
		op := limiters.Op{Key: "alice", Limit: l, Hits: 1}
		// 1,000,000,000 s is a multiple of the window: a window begins at 0 in the picture.
		must.Succeed(t, store.TakeAt(t.Context(), time.Unix(1_000_000_000, 0).Add(at), []limiters.Group{{op}}, verdicts))
		all = append(all, request{at, verdicts[0].Allowed})
	}
	return all
}

// inWindow is the number of requests admitted in the window that ends at end.
func inWindow(all []request, end time.Duration) (n int) {
	for _, r := range all {
		if r.admitted && r.at <= end && r.at > end-window {
			n++
		}
	}
	return n
}

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 %d" font-family="sans-serif" font-size="13" role="img">
<title>Requests that each algorithm admits</title>
<style>
.back { fill: #ffffff } text { fill: #1f2328 } .faint { fill: #59636e; font-size: 12px } .name { font-weight: bold; font-size: 14px }
.yes { fill: #1a7f37 } .no { stroke: #cf222e; stroke-width: 1.8; fill: none } .rule { stroke: #d1d9e0 }
.limit { stroke: #cf222e; stroke-dasharray: 4 3 } .used { fill: #ddf4ff; stroke: #0969da }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } text { fill: #f0f6fc } .faint { fill: #9198a1 } .yes { fill: #3fb950 } .no { stroke: #f85149 }
.rule { stroke: #3d444d } .limit { stroke: #f85149 } .used { fill: #121d2f; stroke: #4493f8 }
}
</style>
<rect class="back" width="480" height="%d"/>
`

const (
	left, right = 12.0, 468.0
	panel       = 168 // height of an algorithm
	first       = 66  // top of the first one
)

func x(at time.Duration) float64 { return left + (right-left)*float64(at)/float64(length) }

func draw(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	algorithms := []struct{ name, title string }{
		{"fixed_window", "counts in windows by the clock"},
		{"sliding_log", "counts the last 10 s"},
		{"funnel", "holds 5, leaks 1 every 2 s"},
	}
	height := first + panel*len(algorithms) + 8
	fmt.Fprintf(&b, head, height, height)
	b.WriteString(`<text class="name" x="12" y="22">The same requests under a limit of 5 per 10 s</text>` + "\n")
	fmt.Fprintf(&b, `<circle class="yes" cx="18" cy="42" r="5"/><text x="28" y="46">admitted</text>`+"\n")
	fmt.Fprintf(&b, `<path class="no" d="%s"/><text x="118" y="46">denied</text>`+"\n", cross(108, 42))
	fmt.Fprintf(&b, `<rect class="used" x="178" y="36" width="14" height="11"/><text x="198" y="46">admitted in the last 10 s</text>`+"\n")
	for i, a := range algorithms {
		drawOne(&b, simulate(t, a.name), a.name, a.title, float64(first+panel*i))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawOne(b *strings.Builder, all []request, name, title string, top float64) {
	const step = 100 * time.Millisecond
	dots, bottom := top+40, top+136
	y := func(n int) float64 { return bottom - 7*float64(n) }
	most, points := 0, []string{}
	for at := time.Duration(0); at <= length; at += step {
		n := inWindow(all, at)
		most = max(most, n)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(at), y(n)))
	}
	fmt.Fprintf(b, `<text x="12" y="%.0f"><tspan class="name">%s</tspan> %s</text>`+"\n", top+18, name, title)
	for at := time.Duration(0); at <= length; at += window {
		fmt.Fprintf(b, `<line class="rule" x1="%.1f" y1="%.0f" x2="%.1f" y2="%.0f"/>`+"\n", x(at), top+28, x(at), bottom)
		anchor := map[time.Duration]string{0: "start", length: "end"}[at]
		if anchor == "" {
			anchor = "middle"
		}
		fmt.Fprintf(b, `<text class="faint" x="%.1f" y="%.0f" text-anchor="%s">%d s</text>`+"\n", x(at), bottom+15, anchor, int(at.Seconds()))
	}
	fmt.Fprintf(b, `<polygon class="used" points="%.1f,%.1f %s %.1f,%.1f"/>`+"\n", left, bottom, strings.Join(points, " "), right, bottom)
	fmt.Fprintf(b, `<line class="limit" x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f"/>`+"\n", left, y(limit), right, y(limit))
	fmt.Fprintf(b, `<text class="faint" x="%.0f" y="%.0f" text-anchor="end">most in any 10 s: %d</text>`+"\n", right, top+18, most)
	fmt.Fprintf(b, `<text class="faint" x="%.0f" y="%.1f">limit: %d</text>`+"\n", left+4, y(limit)-6, limit)
	for _, r := range all {
		if r.admitted {
			fmt.Fprintf(b, `<circle class="yes" cx="%.1f" cy="%.0f" r="3.6"/>`+"\n", x(r.at), dots)
		} else {
			fmt.Fprintf(b, `<path class="no" d="%s"/>`+"\n", cross(x(r.at), dots))
		}
	}
}

func cross(x, y float64) string {
	return fmt.Sprintf("M%.1f %.1fl6 6m0 -6l-6 6", x-3, y-3)
}

func TestAlgorithmsPictureIsCurrent(t *testing.T) {
	want := draw(t)
	if *update {
		must.Succeed(t, os.WriteFile("algorithms.svg", []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile("algorithms.svg")
	if err != nil || string(got) != want {
		t.Errorf("docs/img/algorithms.svg differs from the algorithms (%v): go test ./docs/img -update", err)
	}
}
