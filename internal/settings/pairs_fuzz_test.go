package settings

import (
	"strings"
	"testing"
)

// A list of pairs is accepted completely or rejected, and the error does not contain a value.
func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a=b,c=d", "authorization:Bearer x,y:z", ",,", "=", "a", "a=b=c", " a = b ", "\x00=\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, sep := range []string{"=", ":"} {
			found, err := pairs(text, sep)
			if err != nil {
				if found != nil || len(text) > 60 && strings.Contains(err.Error(), text) {
					t.Errorf("%q: got %v, error %.100v, want no pairs beside an error, which shows no long text whole", text, found, err)
				}
				continue
			}
			if len(found) > 1+strings.Count(text, ",") {
				t.Errorf("%q: got %v, want at most one pair between commas", text, found)
			}
			for key, value := range found {
				if key == "" || !strings.Contains(text, key+sep+value) {
					t.Errorf("%q: got key %q and value %q, want a key, and both in the text", text, key, value)
				}
			}
		}
	})
}
