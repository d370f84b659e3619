package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A batch is hits as the script takes them; its header names the arguments.
type batch struct {
	hits []limiters.Hit
	keys []string
	args []any
	at   []int // which verdict is of which hit; nil: they stand in the same order
}

func newBatch(now time.Time, hits []limiters.Hit, keys []string) *batch {
	b := &batch{hits: hits, keys: keys, args: make([]any, 2, 3+3*len(hits))}
	b.args[0] = ""
	if !now.IsZero() {
		b.args[0] = now.UnixMicro()
	}
	var limits []*limiters.Limit
	index := make([]int, len(hits))
	for i := range hits {
		l := hits[i].Limit
		j := 0
		for j < len(limits) && limits[j] != l {
			j++
		}
		if j == len(limits) {
			limits = append(limits, l)
			b.args = append(b.args, l.Params())
		}
		index[i] = j + 1
	}
	b.args[1] = len(limits)
	for i := range hits {
		h := &hits[i]
		n := max(-limiters.MaxHits, min(h.N, limiters.MaxHits))
		b.args = append(b.args, index[i], n, int(h.Group))
	}
	return b
}

// read writes what the script replied to the verdicts of the batch's hits.
func (b *batch) read(reply any, out []limiters.Verdict) error {
	values, ok := reply.([]any)
	if !ok || len(values) != redisscripts.ReplyFields*len(b.hits) {
		return fmt.Errorf("want %d values, got %T of %d", redisscripts.ReplyFields*len(b.hits), reply, len(values))
	}
	for i := range b.hits {
		v, err := b.verdict(i, values[redisscripts.ReplyFields*i:])
		if err != nil {
			return err
		}
		out[b.place(i)] = v
	}
	return nil
}

// place is where the verdict of hit i goes.
func (b *batch) place(i int) int {
	if b.at == nil {
		return i
	}
	return b.at[i]
}

func (b *batch) verdict(i int, values []any) (limiters.Verdict, error) {
	if text, failed := values[0].(string); failed {
		return limiters.Verdict{Err: &KeyError{Key: b.keys[i], Reply: text}}, nil
	}
	var n [redisscripts.ReplyFields]int64
	for j := range n {
		var ok bool
		if n[j], ok = values[j].(int64); !ok {
			return limiters.Verdict{}, errors.New("want integers, got " + strconv.Quote(fmt.Sprint(values[j])))
		}
	}
	return limiters.Told(b.hits[i].Limit, n[0] == 1, n[1], n[2], n[3]), nil
}

// A KeyError says why Redis could not decide the hits on one key. Its text does not show the key, which holds what users
// sent.
type KeyError struct {
	Key   string // in Redis
	Reply string // what Redis, or the script, said
}

func (e *KeyError) Error() string { return "redisstore: a key that cannot be decided: " + e.Reply }

// StoreKey is the key in Redis, for whoever may see it.
func (e *KeyError) StoreKey() string { return e.Key }
