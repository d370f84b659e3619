package memo

import (
	"errors"
	"testing"
)

func TestCacheComputesAValueOnce(t *testing.T) {
	var c Cache[string, int]
	calls := 0
	get := func(err error) (int, error) {
		return c.Get("key", func() (int, error) { calls++; return calls, err })
	}
	wrong := errors.New("wrong")
	if _, err := get(wrong); !errors.Is(err, wrong) || c.Len() != 0 {
		t.Errorf("%v with %d values, want %v and none", err, c.Len(), wrong)
	}
	for range 3 {
		if v, err := get(nil); v != 2 || err != nil {
			t.Errorf("%d, %v, want the value of the second call", v, err)
		}
	}
	c.Clear()
	if v, _ := get(nil); v != 3 {
		t.Errorf("%d after Clear, want the value of the third call", v)
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c Cache[int, int]
	for i := range maxValues + 100 {
		if v, err := c.Get(i, func() (int, error) { return i, nil }); v != i || err != nil {
			t.Fatalf("%d, %v, want %d", v, err, i)
		}
	}
	if n := c.Len(); n != maxValues {
		t.Errorf("%d values, want %d", n, maxValues)
	}
}
