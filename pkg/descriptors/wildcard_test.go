package descriptors

import (
	"math/rand/v2"
	"testing"
)

func TestEntryCoversTheTextsOfItsWildcard(t *testing.T) {
	for _, tt := range []struct {
		e, other Entry
		want     bool
	}{
		{Entry{"k", ""}, Entry{"k", "v"}, true},
		{Entry{"k", ""}, Entry{"k", ""}, true},
		{Entry{"k", ""}, Entry{"l", ""}, false},
		{Entry{"k", "*"}, Entry{"k", ""}, true},
		{Entry{"k", "a*"}, Entry{"k", ""}, false},
		{Entry{"k", "v"}, Entry{"k", ""}, false},
		{Entry{"k*", "*"}, Entry{"key", "a"}, true},
		{Entry{"key", "a"}, Entry{"k*", "a"}, false},
		{Entry{"k", "a*"}, Entry{"k", "a*"}, true},
		{Entry{"k", "a*"}, Entry{"k", "ab*"}, true},
		{Entry{"k", "ab*"}, Entry{"k", "a*"}, false},
		{Entry{"k", "a*b"}, Entry{"k", "ab*"}, false},
		{Entry{"k", "a\x00*"}, Entry{"k", "a*b"}, false},
	} {
		if got := tt.e.Covers(tt.other); got != tt.want {
			t.Errorf("%q covers %q: %v, want %v", tt.e, tt.other, got, tt.want)
		}
	}
}

// A wildcard covers another if it matches every text that the other matches. The test tries all
// texts of up to five characters.
func TestCoversEqualsMatchesOfAllTexts(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		texts = append(texts, texts[i]+"a", texts[i]+"b", texts[i]+"c")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		wildcard, other := randomWildcard(random), randomWildcard(random)
		w, o, all := newStarText(wildcard), newStarText(other), true
		for _, text := range texts {
			all = all && (!o.match(text) || w.match(text))
		}
		if got := covers(wildcard, other); got != all {
			t.Fatalf("%q covers %q: %v, want %v", wildcard, other, got, all)
		}
	}
}

// randomWildcard returns a text without the letter c, which then only a '*' matches.
func randomWildcard(random *rand.Rand) string {
	b := make([]byte, 1+random.IntN(3))
	for i := range b {
		b[i] = "ab*"[random.IntN(3)]
	}
	return string(b)
}
