package descriptors_test

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
)

func TestLongLabelIsCutWithHash(t *testing.T) {
	const n = 700
	long := strings.Repeat("ж", 1000)
	a, b := descriptors.Bounded(long+"a", n), descriptors.Bounded(long+"b", n)
	if len(a) > n || a == b || !strings.HasPrefix(a, "жжж") || strings.Contains(a, "\uFFFD") {
		t.Errorf("%q and %q", a, b)
	}
	if got := descriptors.Bounded("\xff\xfe", n); got != "\uFFFD" {
		t.Errorf("%q, want one replacement character", got)
	}
	if s := strings.Repeat("x", n); descriptors.Bounded(s, n) != s {
		t.Error("a text of the largest length was cut")
	}
}
