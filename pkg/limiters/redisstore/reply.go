package redisstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

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
	return reply{time: redisscripts.DecodeNumber(text), verdicts: text[wordSize:], texts: values[1:]}, nil
}

func (r reply) isLate() bool { return r.verdicts == "" }

// text returns the text with index i, from 1.
func (r reply) text(i int64) string {
	if i < 1 || i > int64(len(r.texts)) {
		return "the script gave no reason"
	}
	return fmt.Sprint(r.texts[i-1])
}

// decode decodes the verdicts of a reply into out.
func (b *batch) decode(r reply, out []limiters.Verdict) error {
	if r.isLate() {
		return errLate
	}
	count := 0
	for i := range b.ops {
		count += b.ops[i].verdictCount()
	}
	if len(r.verdicts) != redisscripts.VerdictSize*count {
		return fmt.Errorf("the script's reply has %d bytes of verdicts: want %d of %d bytes", len(r.verdicts), count, redisscripts.VerdictSize)
	}
	text := r.verdicts
	for i := range b.ops {
		out[i] = b.verdict(i, text, r)
		text = text[redisscripts.VerdictSize*b.ops[i].verdictCount():]
	}
	return nil
}

// verdict decodes the verdict of operation i, with which text begins.
func (b *batch) verdict(i int, text string, r reply) limiters.Verdict {
	op := &b.ops[i]
	result, used, retry, reset := redisscripts.DecodeVerdict(text)
	alreadyOpen := result == redisscripts.ResultLeaseAlreadyOpen
	v := limiters.NewVerdict(op.Limit, alreadyOpen || result == redisscripts.ResultAllowed, used, retry, reset)
	v.At, v.LeaseAlreadyOpen = r.time, alreadyOpen
	if b.now.IsZero() {
		v.Order = uint16(i)
	} else {
		v.At = b.now.UnixMicro()
	}
	if result&redisscripts.ResultDuringPenalty != 0 {
		v.Remaining = 0
	}
	switch result &^ redisscripts.ResultDuringPenalty {
	case redisscripts.ResultPenalized, redisscripts.ResultPenaltyBegan:
		v = v.WithPenalty(v.RetryAfter)
		v.PenaltyBegan = result == redisscripts.ResultPenaltyBegan
	case redisscripts.ResultTooManyLeases:
		v.TooManyLeases = true
	case redisscripts.ResultFailed:
		return limiters.Verdict{Err: &KeyError{Key: b.keys[op.keyIndex], Reply: r.text(used)}}
	}
	if op.verdictCount() > 1 {
		_, _, micros, _ := redisscripts.DecodeVerdict(text[redisscripts.VerdictSize:])
		left := time.Duration(micros) * time.Microsecond
		v = v.WithPenalty(left)
		v.PenaltyLeft = left
	}
	return v
}
