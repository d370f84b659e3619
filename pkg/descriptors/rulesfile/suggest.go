package rulesfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// ruleSynonyms maps keys of other rate limiters to advice.
var ruleSynonyms = map[string]string{
	"burst":  "write 'capacity' with 'algorithm: funnel'",
	"limit":  "write 'requests_per_unit'",
	"max":    "write 'requests_per_unit'",
	"rate":   "write 'requests_per_unit' and 'unit'",
	"window": "write 'unit', and 'unit_multiplier' for several units",
	"period": "write 'unit', and 'unit_multiplier' for several units",
	"per":    "write 'unit', and 'unit_multiplier' for several units",
	"rules":  "write 'descriptors'",
	"status": "write 'rate_limited_status' in Envoy's filter",
	"tests":  "these are tests of rules: weir test runs them",

	"static_resources":  "this is an Envoy configuration: weir explain --envoy reads it",
	"dynamic_resources": "this is an Envoy configuration: weir explain --envoy reads it",
	"virtual_hosts":     "this is an Envoy configuration: weir explain --envoy reads it",

	"token_bucket":   "write 'funnel'",
	"leaky_bucket":   "write 'funnel'",
	"bucket":         "write 'funnel'",
	"gcra":           "write 'funnel'",
	"sliding_window": "write 'sliding_log'",
	"rolling_window": "write 'sliding_log'",
}

// suggest returns advice for an invalid word: a synonym, the nearest of words, or all of them.
func suggest(word string, words []string) string {
	if advice, known := nearestOf(word, words, ruleSynonyms); known {
		return advice
	}
	return "want one of " + strings.Join(words, ", ")
}

// nearestOf returns the nearest of words, or advice from synonyms.
func nearestOf(word string, words []string, synonyms map[string]string) (advice string, found bool) {
	if best := spelling.Nearest(word, words); best != "" {
		return fmt.Sprintf("did you mean '%s'?", best), true
	}
	advice, found = synonyms[strings.ReplaceAll(strings.ToLower(word), "-", "_")]
	return advice, found
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

// suggestUnit returns advice for an invalid unit, such as minutes, 10s or hourly.
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
		unit = spelling.Nearest(word, descriptors.UnitNames())
	}
	switch {
	case unit == "":
		return "want one of " + strings.Join(descriptors.UnitNames(), ", ")
	case number == "" || number == "1":
		return fmt.Sprintf("write 'unit: %s'", unit)
	}
	return fmt.Sprintf("write 'unit: %s' and 'unit_multiplier: %s'", unit, number)
}

// suggestZone returns advice for an invalid time zone, such as europe/berlin, Berlin or UTC+2.
func suggestZone(word string, zones []string) string {
	if best := spelling.Nearest(word, zones); best != "" {
		return fmt.Sprintf("did you mean '%s'?", best)
	}
	city := strings.ReplaceAll(strings.ToLower(word), " ", "_")
	for _, zone := range zones {
		if city != "" && strings.HasSuffix(strings.ToLower(zone), "/"+city) {
			return fmt.Sprintf("did you mean '%s'?", zone)
		}
	}
	return "want a name of the IANA time zone database, such as Europe/Berlin"
}
