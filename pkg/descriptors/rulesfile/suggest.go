package rulesfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// synonyms are words of other rate limiters, and what to write instead.
var synonyms = map[string]string{
	"burst":  "write 'capacity' with 'algorithm: funnel'",
	"limit":  "write 'requests_per_unit'",
	"max":    "write 'requests_per_unit'",
	"rate":   "write 'requests_per_unit' and 'unit'",
	"window": "write 'unit', and 'unit_multiplier' for several units",
	"period": "write 'unit', and 'unit_multiplier' for several units",
	"per":    "write 'unit', and 'unit_multiplier' for several units",
	"rules":  "write 'descriptors'",

	"token_bucket":   "write 'funnel'",
	"leaky_bucket":   "write 'funnel'",
	"bucket":         "write 'funnel'",
	"gcra":           "write 'funnel'",
	"sliding_window": "write 'sliding_log'",
	"rolling_window": "write 'sliding_log'",
}

// suggest returns the advice for a word that is none of words: a synonym, the nearest of words, or the list of them.
func suggest(word string, words []string) string {
	if advice, known := nearest(word, words); known {
		return advice
	}
	return "write one of " + strings.Join(words, ", ")
}

func nearest(word string, words []string) (advice string, found bool) {
	if best := closest(word, words); best != "" {
		return fmt.Sprintf("did you mean '%s'?", best), true
	}
	advice, found = synonyms[strings.ReplaceAll(strings.ToLower(word), "-", "_")]
	return advice, found
}

// closest returns the word that word is probably a misspelling of, "" if there is none.
func closest(word string, words []string) string {
	const maxWord = 40 // longer than any word of the grammar
	if len(word) > maxWord {
		return ""
	}
	best, least := "", 3
	for _, w := range words {
		d := distance(plain(word), plain(w))
		// In a short word, one other letter already makes another word.
		if d < least && 3*d <= len(w) {
			best, least = w, d
		}
	}
	return best
}

// plain drops what people spell differently: rateLimit, rate-limit, RATE_LIMIT.
func plain(word string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
}

// distance returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			d[i][j] = min(d[i-1][j], d[i][j-1]) + 1
			if a[i-1] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-1][j-1])
			} else {
				d[i][j] = min(d[i][j], d[i-1][j-1]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

var (
	numbered  = regexp.MustCompile(`^([0-9]{1,9}) *([a-z]+)$`)
	unitWords = map[string]string{
		"s": "second", "sec": "second", "secs": "second", "m": "minute", "min": "minute", "mins": "minute",
		"h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week", "y": "year",
		"secondly": "second", "minutely": "minute", "hourly": "hour", "daily": "day", "weekly": "week",
		"monthly": "month", "yearly": "year", "rps": "second", "rpm": "minute",
	}
)

// suggestUnit returns the advice for a unit that is none: minutes, 10s, hourly.
func suggestUnit(word string) string {
	word = strings.ToLower(word)
	number := ""
	if m := numbered.FindStringSubmatch(word); m != nil {
		number, word = m[1], m[2]
	}
	unit := unitWords[word]
	if unit == "" {
		unit = strings.TrimSuffix(word, "s")
	}
	if !slices.Contains(descriptors.UnitNames(), unit) {
		unit = closest(word, descriptors.UnitNames())
	}
	switch {
	case unit == "":
		return "write one of " + strings.Join(descriptors.UnitNames(), ", ")
	case number == "" || number == "1":
		return fmt.Sprintf("write 'unit: %s'", unit)
	}
	return fmt.Sprintf("write 'unit: %s' and 'unit_multiplier: %s'", unit, number)
}
