package spelling

import "testing"

func TestNearestAllowsFewMistakes(t *testing.T) {
	words := []string{"serve", "check", "version", "rate_limit"}
	for word, want := range map[string]string{
		"cehck": "check", "chekc": "check", "CHECK": "check", "versoin": "version", "rateLimit": "rate_limit",
		"frobnicate": "", "": "", "chock full": "", "s": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
