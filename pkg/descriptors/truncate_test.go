package descriptors_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/descriptors"
)

func TestLongLabelIsCutWithHash(t *testing.T) {
	const n = 700
	long := strings.Repeat("ж", 1000)
	a, b := descriptors.TruncateWithHash(long+"a", n), descriptors.TruncateWithHash(long+"b", n)
	if len(a) > n || a == b || !strings.HasPrefix(a, "жжж") || strings.Contains(a, "\uFFFD") {
		t.Errorf("%q and %q", a, b)
	}
	for _, tail := range []string{"", strings.Repeat("x", n)} {
		a, b := descriptors.TruncateWithHash("\xff"+tail, n), descriptors.TruncateWithHash("\xfe"+tail, n)
		if len(a) > n || a == b || !utf8.ValidString(a) || !strings.HasPrefix(a, "\uFFFD") {
			t.Errorf("%q and %q, want a replacement character and different hashes", a, b)
		}
	}
	if s := strings.Repeat("x", n); descriptors.TruncateWithHash(s, n) != s {
		t.Error("a text of the largest length was cut")
	}
}
