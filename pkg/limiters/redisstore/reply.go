package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// verdictSize is the encoded size of a verdict: result, used, retry and reset.
const verdictSize = 1 + 3*wordSize

// errLate is returned by a call that ran after its deadline. Nothing was charged.
var errLate = limiters.Uncharged(errors.New("the call ran after its deadline"))

type reply struct {
	time     int64  // the server's time, in µs since 1970
	verdicts string // encoded; empty if the call ran after its deadline
	texts    []any  // the reasons of failed operations
}

func readReply(value any) (reply, error) {
	values, _ := value.([]any)
	if len(values) == 0 {
		return reply{}, fmt.Errorf("the script's reply is %T: want an array", value)
	}
	text, _ := values[0].(string)
	if len(text) < wordSize {
		return reply{}, fmt.Errorf("the script's reply has %d bytes: want at least %d", len(text), wordSize)
	}
	return reply{time: word(text), verdicts: text[wordSize:], texts: values[1:]}, nil
}

func (r reply) isLate() bool { return r.verdicts == "" }

// text returns the text with index i, from 1.
func (r reply) text(i int64) string {
	if i < 1 || i > int64(len(r.texts)) {
		return "the script gave no reason"
	}
	return fmt.Sprint(r.texts[i-1])
}

func word(s string) int64 { return int64(binary.BigEndian.Uint64([]byte(s))) }

// decode decodes the verdicts of a reply into out.
func (b *batch) decode(r reply, out []limiters.Verdict) error {
	if r.isLate() {
		return errLate
	}
	count := 0
	for i := range b.ops {
		count += b.verdictsOf(i)
	}
	if len(r.verdicts) != verdictSize*count {
		return fmt.Errorf("the script's reply has %d bytes of verdicts: want %d of %d bytes", len(r.verdicts), count, verdictSize)
	}
	text := r.verdicts
	for i := range b.ops {
		out[i] = b.verdict(i, text, r)
		text = text[verdictSize*b.verdictsOf(i):]
	}
	return nil
}

// verdict decodes the verdict of operation i, with which text begins.
func (b *batch) verdict(i int, text string, r reply) limiters.Verdict {
	used, retry, reset := word(text[1:]), word(text[1+wordSize:]), word(text[1+2*wordSize:])
	v := limiters.NewVerdict(b.ops[i].Limit, text[0] == redisscripts.ResultAllowed, used, retry, reset)
	v.At = r.time
	if b.now.IsZero() {
		v.Order = uint16(i)
	} else {
		v.At = b.now.UnixMicro()
	}
	if text[0]&redisscripts.ResultDuringPenalty != 0 {
		v.Remaining = 0
	}
	switch text[0] &^ redisscripts.ResultDuringPenalty {
	case redisscripts.ResultPenalized, redisscripts.ResultPenaltyBegan:
		v = v.WithPenalty(v.RetryAfter)
		v.PenaltyBegan = text[0] == redisscripts.ResultPenaltyBegan
	case redisscripts.ResultTooManyLeases:
		v.TooManyLeases = true
	case redisscripts.ResultFailed:
		return limiters.Verdict{Err: &KeyError{Key: b.keys[i], Reply: r.text(used)}}
	}
	if b.verdictsOf(i) > 1 {
		left := time.Duration(word(text[verdictSize+1+wordSize:])) * time.Microsecond
		v = v.WithPenalty(left)
		v.PenaltyLeft = left
	}
	return v
}
