package report

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/internal/terminal"
)

var functions = template.FuncMap{
	"num": terminal.Grouped, "count": count, "share": share, "percent": percent, "seconds": seconds, "duration": duration,
	"moment": moment, "clock": clock, "key": key, "words": words,
	"about": aboutModel,
	"width": func(part, whole int64) float64 { return 100 * ratio(part, whole) }, // the width of a bar, in percent
	"float": func(x float64) string { return terminal.Grouped(int64(x + 0.5)) },
}

// ratio returns a part of a whole, or 0 without a whole.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// share formats a part of a whole in percent.
func share(part, whole int64) string { return percent(ratio(part, whole)) }

// aboutModel describes a client model.
func aboutModel(m simulate.Model) string {
	return map[simulate.Model]string{
		simulate.Drop:   "a denied request is not sent again",
		simulate.Obey:   "a denied request is sent again after its Retry-After",
		simulate.Hammer: "a denied request is sent again at a short fixed interval",
	}[m]
}

// count formats a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1\u00a0" + thing
	}
	return terminal.Grouped(n) + "\u00a0" + thing + "s"
}

func percent(part float64) string {
	switch p := 100 * part; {
	case p == 0:
		return "0\u00a0%"
	case p < 0.01:
		return "<\u00a00.01\u00a0%"
	case p == 100:
		return "100\u00a0%"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 2, 64) + "\u00a0%"
	default:
		return strconv.FormatFloat(p, 'f', 1, 64) + "\u00a0%"
	}
}

// seconds formats a number of seconds. The sum over many keys may be too long for a Duration.
func seconds(s float64) string {
	if days := s / (24 * 60 * 60); days >= 1000 {
		return terminal.Grouped(int64(days)) + "\u00a0d"
	}
	return duration(time.Duration(s * float64(time.Second)))
}

// duration formats a duration with its two largest units.
func duration(d time.Duration) string {
	switch {
	case d == 0:
		return "0\u00a0s"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "\u00a0ms"
	case d < time.Minute:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "\u00a0s"
	case d < time.Hour:
		return fmt.Sprintf("%d\u00a0min\u00a0%d\u00a0s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d\u00a0h\u00a0%d\u00a0min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%s\u00a0d\u00a0%d\u00a0h", terminal.Grouped(int64(d/(24*time.Hour))), d%(24*time.Hour)/time.Hour)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// clock formats a time within a chart of a length in seconds.
func clock(t time.Time, length float64) string {
	switch {
	case length > 86400:
		return t.UTC().Format("2006-01-02 15:04")
	case length < 10:
		return t.UTC().Format("15:04:05.000")
	}
	return t.UTC().Format("15:04:05")
}

// words replaces the underscores in a name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// key returns a key of a client for display. It escapes characters that are not printable, such as
// those that change the direction of text.
func key(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
