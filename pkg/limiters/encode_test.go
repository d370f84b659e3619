package limiters

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// A log gives the same verdicts after it was written and read. The logs have all lengths, expired
// hits at the front and refunded hits at the end.
func TestLogIsReadAsItWasWritten(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: "sliding_log", Max: 100_000, Window: time.Second})
	must.Succeed(t, err)
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		s, now := State{}, int64(1e15)
		for range rnd.IntN(6000) {
			now += rnd.Int64N(2000)
			n := rnd.Int64N(9) - 2
			if n == 0 {
				continue
			}
			l.hits.charge(&s, now, n)
		}
		b := AppendState(nil, l, &s)
		if len(b) != StateLen(l, &s) {
			t.Fatalf("%d bytes, want %d", len(b), StateLen(l, &s))
		}
		got, err := ReadState(l, b, false)
		must.Succeed(t, err)
		for at := now; at < now+1_100_000; at += 100_000 {
			for _, n := range []int64{0, 1, 99_000, 100_000} {
				want := l.Check(&s, at, n)
				if v := l.Check(&got, at, n); v != want {
					t.Fatalf("seed %d: %+v, want %+v", seed, v, want)
				}
			}
		}
	}
}

func TestInvalidStateIsRejected(t *testing.T) {
	log, _ := NewLimit(Spec{Algorithm: "sliding_log", Max: 9, Window: time.Second})
	window, _ := NewLimit(Spec{Algorithm: "fixed_window", Max: 9, Window: time.Second})
	entries := func(of ...uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(of[0]))
		for i := 1; i < len(of); i += 2 {
			b = binary.LittleEndian.AppendUint64(b, of[i])
			b = binary.LittleEndian.AppendUint32(b, uint32(of[i+1]))
		}
		return b
	}
	if _, err := ReadState(log, entries(5, 10, 6, 11, 8), false); err != nil {
		t.Errorf("a good log: %v", err)
	}
	if _, err := ReadState(log, entries(1<<32-1, 10, 0, 11, 1), false); err != nil {
		t.Errorf("a log whose counts pass 2^32: %v", err)
	}
	for what, c := range map[string]struct {
		limit *Limit
		b     []byte
	}{
		"a window with an extra byte":    {window, make([]byte, 17)},
		"a window without its last byte": {window, make([]byte, 15)},
		"a window with a negative count": {window, append(make([]byte, 15), 0x80)},
		"a log without entries":          {log, entries(5)},
		"half an entry":                  {log, entries(5, 10, 6)[:9]},
		"equal times":                    {log, entries(5, 10, 6, 10, 7)},
		"decreasing times":               {log, entries(5, 10, 6, 9, 7)},
		"equal counts":                   {log, entries(5, 10, 6, 11, 6)},
		"decreasing counts":              {log, entries(5, 10, 7, 11, 6)},
		"more hits than any log holds":   {log, entries(5, 10, 6+2*MaxLogLimit)},
		"a time far ahead":               {log, entries(5, 1<<60, 6)},
	} {
		if s, err := ReadState(c.limit, c.b, false); err == nil {
			t.Errorf("%s: read as %+v", what, s)
		}
	}
}
