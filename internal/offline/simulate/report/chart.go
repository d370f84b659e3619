package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/simulate"
)

// The units of the pictures. CSS stretches a picture to the width of its column, so no text is in a
// picture.
const (
	wide = 1000
	high = 100
)

// A chart shows counts over time: allowed and denied stacked, and below them denied alone with its
// own scale.
type chart struct {
	Buckets   []bucket
	Top       int64 // the largest sum of a bucket
	TopDenied int64 // the largest number of denied requests in a bucket
	Seconds   float64
	From      time.Time
	Middle    time.Time
	To        time.Time
	// AllowedPath and DeniedPath are the stacked bars. OnlyPath are the bars of denied alone, or ""
	// if the stacked bars show them well.
	AllowedPath, DeniedPath, OnlyPath string
}

// A bucket is a time with its counts.
type bucket struct {
	At      time.Time
	Allowed int64
	Denied  int64
}

func newChart(t *simulate.Timeline, allowed, denied []int64) *chart {
	c := &chart{Seconds: t.BucketSeconds, From: t.Start}
	step := time.Duration(t.BucketSeconds * float64(time.Second))
	n := min(len(allowed), len(denied))
	c.Middle, c.To = t.Start.Add(step*time.Duration(n)/2), t.Start.Add(step*time.Duration(n))
	for i := range n {
		c.Top, c.TopDenied = max(c.Top, allowed[i]+denied[i]), max(c.TopDenied, denied[i])
		c.Buckets = append(c.Buckets, bucket{t.Start.Add(step * time.Duration(i)), allowed[i], denied[i]})
	}
	var allowedPath, deniedPath, onlyPath strings.Builder
	for i, b := range c.Buckets {
		bar := barPlot{x: wide * float64(i) / float64(n), width: wide / float64(n)}
		base := bar.draw(&allowedPath, high, ratio(b.Allowed, c.Top))
		bar.draw(&deniedPath, base, ratio(b.Denied, c.Top))
		bar.draw(&onlyPath, high, ratio(b.Denied, c.TopDenied))
	}
	c.AllowedPath, c.DeniedPath = allowedPath.String(), deniedPath.String()
	if 2*c.TopDenied < c.Top {
		c.OnlyPath = onlyPath.String()
	}
	return c
}

// A barPlot is the column of a bar.
type barPlot struct{ x, width float64 }

// draw adds a bar to a path, from its base upwards, and returns the top of the bar. Its height is a
// part of the chart's; every part above 0 is visible.
func (p barPlot) draw(path *strings.Builder, base, part float64) float64 {
	if part == 0 {
		return base
	}
	height := max(1, high*part)
	fmt.Fprintf(path, "M%.2f %.2fh%.2fv%.2fh%.2fz", p.x, base, p.width*0.9, -height, -p.width*0.9)
	return base - height
}

// Length returns the time of the chart in seconds.
func (c *chart) Length() float64 { return c.To.Sub(c.From).Seconds() }

// Series returns the counts for the tooltips of the page.
func (c *chart) Series() string {
	var b strings.Builder
	for i, bucket := range c.Buckets {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d,%d", bucket.Allowed, bucket.Denied)
	}
	return b.String()
}

// Start returns the start of the first bucket in ms since 1970.
func (c *chart) Start() int64 { return c.From.UnixMilli() }

// Busy returns the buckets with requests.
func (c *chart) Busy() []bucket {
	return slices.DeleteFunc(slices.Clone(c.Buckets), func(b bucket) bool { return b.Allowed+b.Denied == 0 })
}

// A bar is a bin of the usage of keys.
type bar struct {
	simulate.UsageBin
	Width float64 // in percent of the largest bin, on a logarithmic scale, so that small bins are visible
	Over  bool    // the demand exceeds the limit
	Text  string
}

// histogram returns the bins without the empty ones at both ends.
func histogram(bins []simulate.UsageBin) []bar {
	most := int64(1)
	for len(bins) > 0 && bins[0].Keys == 0 {
		bins = bins[1:]
	}
	for len(bins) > 0 && bins[len(bins)-1].Keys == 0 {
		bins = bins[:len(bins)-1]
	}
	for _, b := range bins {
		most = max(most, b.Keys)
	}
	var bars []bar
	for _, b := range bins {
		text := fmt.Sprintf("%d to %d\u00a0%%", b.AbovePercent, b.UpToPercent)
		if b.UpToPercent == 0 {
			text = fmt.Sprintf("above %d\u00a0%%", b.AbovePercent)
		}
		bars = append(bars, bar{b, 100 * math.Log1p(float64(b.Keys)) / math.Log1p(float64(most)), b.AbovePercent >= 100, text})
	}
	return bars
}

// A keyRow is a denied key, with the time of its denials as a part of the recording.
type keyRow struct {
	simulate.TopKey
	X, Width float64 // in wide
}

func keyRows(keys []simulate.TopKey, from, to time.Time) []keyRow {
	length := max(to.Sub(from).Seconds(), 1e-6)
	rows := make([]keyRow, 0, len(keys))
	for _, k := range keys {
		x := wide * k.FirstDenied.Sub(from).Seconds() / length
		end := wide * k.LastDenied.Sub(from).Seconds() / length
		x = min(max(x, 0), wide-8)
		rows = append(rows, keyRow{k, x, min(max(end-x, 8), wide-x)})
	}
	return rows
}

// A burst shows the hits of one key that each algorithm admits, in the interval in which a fixed
// window admits the most.
type burst struct {
	*simulate.Burst
	Limit  int64
	Lines  []line
	LimitY float64
	EdgeX  float64 // the boundary between two windows, in wide; negative without one
	Top    int64
	Demand int64     // hits in the interval
	Shown  time.Time // the start of the picture
}

// A line shows the admitted hits so far.
type line struct {
	Name, Class, Points string
	Hits                int64
}

// newBurst returns the picture, or nil if no algorithm denies a request and none admits more than
// the limit.
func newBurst(l *simulate.LimitResult) *burst {
	if l.Comparison == nil || l.Comparison.Burst == nil || !slices.ContainsFunc(l.Comparison.Algorithms, func(a simulate.AlgorithmResult) bool {
		return a.Denied > 0 || a.Burst > l.RequestsPerUnit
	}) {
		return nil
	}
	from := l.Comparison.Burst
	b := &burst{Burst: from, Limit: l.RequestsPerUnit, EdgeX: -1, Demand: sum(from.Demand)}
	// The picture begins one bin before the first hit.
	first := max(0, slices.IndexFunc(from.Demand, func(n int64) bool { return n > 0 })-1)
	length := from.To.Sub(from.From)
	b.Shown = from.From.Add(length * time.Duration(first) / time.Duration(max(1, len(from.Demand))))
	series := []struct {
		name, class string
		counts      []int64
	}{{"fixed_window", "fixed", from.Fixed}, {"funnel", "funnel", from.Funnel}, {"sliding_log", "log", from.Log}}
	b.Top = b.Limit
	for _, s := range series {
		b.Top = max(b.Top, sum(s.counts))
	}
	b.Top = max(b.Top, 1)
	y := func(hits int64) float64 { return high - (high-4)*float64(hits)/float64(b.Top) }
	b.LimitY = y(b.Limit)
	for _, s := range series {
		if len(s.counts) == 0 {
			continue
		}
		var points strings.Builder
		total := int64(0)
		fmt.Fprintf(&points, "M0 %.2f", y(0))
		shown := s.counts[first:]
		for i, n := range shown {
			total += n
			if n != 0 {
				fmt.Fprintf(&points, "H%.2fV%.2f", wide*(float64(i)+0.5)/float64(len(shown)), y(total))
			}
		}
		fmt.Fprintf(&points, "H%d", wide)
		b.Lines = append(b.Lines, line{s.name, s.class, points.String(), total})
	}
	if shown := from.To.Sub(b.Shown); from.Boundary.After(b.Shown) && shown > 0 {
		b.EdgeX = wide * from.Boundary.Sub(b.Shown).Seconds() / shown.Seconds()
	}
	return b
}

// Times returns the hits of a line as a multiple of the limit, such as 2.0 × the limit.
func (b *burst) Times(hits int64) string {
	if b.Limit == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f\u00a0×\u00a0the\u00a0limit", float64(hits)/float64(b.Limit))
}

func sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}
