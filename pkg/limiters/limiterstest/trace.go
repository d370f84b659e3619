package limiterstest

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

//go:embed testdata/*.txt
var traceFiles embed.FS

// traceStart is the time at which every trace starts: a multiple of a day.
var traceStart = time.Date(2025, 11, 21, 0, 0, 0, 0, time.UTC)

// RunTraces runs the traces of testdata on a store. Each trace has keys of its own.
//
//	trace NAME                                  begins a trace, at traceStart
//	limit [NAME] ALGORITHM max=N window=D ...   sets the limit that operations are under; count_denied, and the parameters of the algorithm
//	at TIME                                     sets the clock, in the form of RFC 3339
//	[+D|-D] OP => VERDICT                       moves the clock, takes an operation, expects a verdict
//	[+D|-D] OP, OP => VERDICT, VERDICT          two operations of one call
//	[+D|-D] OP & OP => VERDICT, VERDICT         two operations of one group
//
// The forms of an OP are `take N` (charge), `peek`, `peek for N denied` (a peek with denied hits),
// `refund N` and `inspect`. Under a limit with leases, `take N as ID` has a lease, `release ID`
// ends it, and `settle ID N` settles a reservation. An OP may have `of KEY` and `under LIMIT`. A
// VERDICT is "ok used=N remaining=N reset=D" or "denied used=N remaining=N retry=D reset=D", where
// a retry may be "never". A denial whose retry is the end of a penalty is "penalized". An
// inspection during a penalty adds "penalty=D", and a charge whose lease is open already adds
// "already_open".
func RunTraces(t *testing.T, store TimedStore) {
	names, err := fs.Glob(traceFiles, "testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no traces", err)
	}
	for _, name := range names {
		text, err := traceFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(path.Base(name), ".txt"), func(t *testing.T) {
			_, mismatches, err := replay(store, name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mismatches {
				t.Error(m)
			}
		})
	}
}

// replay runs the traces of a file. It returns the text with the actual verdicts, and a message for
// each verdict that differs.
func replay(store TimedStore, file, text string) (got string, mismatches []string, err error) {
	var out []string
	r := replayer{store: store, prefix: file}
	for i, line := range strings.Split(text, "\n") {
		got, err := r.line(line)
		if err != nil {
			return "", nil, fmt.Errorf("%s:%d: %q: %w", file, i+1, line, err)
		}
		if got != line {
			mismatches = append(mismatches, fmt.Sprintf("%s:%d: trace %s\n got %s\nwant %s", file, i+1, r.trace, got, line))
		}
		out = append(out, got)
	}
	return strings.Join(out, "\n"), mismatches, nil
}

type replayer struct {
	store         TimedStore
	prefix, trace string
	now           time.Time
	limits        map[string]*limiters.Limit
	usual         *limiters.Limit
}

// line runs a line and returns it with the actual verdicts.
func (r *replayer) line(line string) (string, error) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		return line, nil
	case words[0] == "trace":
		r.trace, r.now, r.limits = strings.Join(words[1:], " "), traceStart, map[string]*limiters.Limit{}
		return line, nil
	case words[0] == "limit":
		return line, r.limit(words[1:])
	case words[0] == "at" && len(words) == 2:
		now, err := time.Parse(time.RFC3339Nano, words[1])
		r.now = now
		return line, err
	}
	step, _, found := strings.Cut(line, "=>")
	if !found {
		return "", fmt.Errorf("want an operation, =>, and its verdict")
	}
	step = strings.TrimRight(step, " ")
	verdicts, err := r.step(strings.Fields(step))
	return step + " => " + verdicts, err
}

func (r *replayer) limit(words []string) error {
	var name string
	if len(words) > 1 && !strings.Contains(words[1], "=") {
		name, words = words[0], words[1:]
	}
	spec := limiters.Spec{Algorithm: words[0]}
	var params []string
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "max":
			spec.Max, err = strconv.ParseInt(value, 10, 64)
		case "window":
			spec.Window, err = time.ParseDuration(value)
		case "count_denied":
			spec.CountDenied = true
		default:
			params = append(params, word)
		}
		if err != nil {
			return err
		}
	}
	var err error
	spec.Params, err = limiters.ParseParams(strings.Join(params, " "))
	if err != nil {
		return err
	}
	l, err := limiters.NewLimit(spec)
	r.limits[name], r.usual = l, l
	return err
}

// step takes the operations of a line and returns their verdicts.
func (r *replayer) step(words []string) (string, error) {
	if len(words) > 0 && strings.ContainsAny(words[0][:1], "+-") {
		d, err := time.ParseDuration(words[0])
		if err != nil {
			return "", err
		}
		r.now, words = r.now.Add(d), words[1:]
	}
	text := strings.Join(words, " ")
	var ops []limiters.Op
	for _, part := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '&' }) {
		op, err := r.op(strings.Fields(part))
		if err != nil {
			return "", err
		}
		ops = append(ops, op)
	}
	groups := limiters.Singles(ops...)
	if strings.Contains(text, " & ") {
		groups = []limiters.Group{ops}
	}
	out := make([]limiters.Verdict, len(ops))
	if err := r.store.TakeAt(context.Background(), r.now, groups, out); err != nil {
		return "", err
	}
	verdicts := make([]string, len(out))
	for i, v := range out {
		verdicts[i] = Format(v)
	}
	return strings.Join(verdicts, ", "), nil
}

func (r *replayer) op(words []string) (limiters.Op, error) {
	op := limiters.Op{Key: r.prefix + "/" + r.trace + "/", Limit: r.usual}
	for len(words) > 0 {
		switch {
		case words[0] == "peek" && len(words) > 3 && words[1] == "for" && words[3] == "denied":
			n, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil {
				return op, err
			}
			op.Kind, op.Hits, words = limiters.OpCountDenied, n, words[4:]
		case words[0] == "peek":
			words = words[1:]
		case words[0] == "inspect":
			op.Kind, words = limiters.OpInspect, words[1:]
		case (words[0] == "take" || words[0] == "refund") && len(words) > 1:
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return op, err
			}
			if words[0] == "refund" {
				n = -n
			}
			op.Hits, words = n, words[2:]
		case words[0] == "as" && len(words) > 1:
			op.Lease, words = limiters.NewLeaseID(nil, words[1]), words[2:]
		case words[0] == "settle" && len(words) > 2:
			n, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil {
				return op, err
			}
			op.Lease, op.Kind, op.Hits, words = limiters.NewLeaseID(nil, words[1]), limiters.OpEnd, n, words[3:]
		case words[0] == "release" && len(words) > 1:
			op.Lease, op.Kind, words = limiters.NewLeaseID(nil, words[1]), limiters.OpEnd, words[2:]
		case words[0] == "of" && len(words) > 1:
			op.Key, words = op.Key+words[1], words[2:]
		case words[0] == "under" && len(words) > 1:
			op.Limit, words = r.limits[words[1]], words[2:]
		default:
			return op, fmt.Errorf("unknown words %q: want take N, peek, peek for N denied, refund N, inspect, as ID, release ID, settle ID N, of KEY or under LIMIT", words)
		}
	}
	if op.Limit == nil {
		return op, fmt.Errorf("no such limit")
	}
	return op, nil
}

// Format returns a verdict as the traces write it.
func Format(v limiters.Verdict) string {
	if v.Err != nil {
		return "error " + v.Err.Error()
	}
	text := fmt.Sprintf("ok used=%d remaining=%d", v.Used, v.Remaining)
	switch {
	case v.Allowed:
	case v.NeverFits():
		text = fmt.Sprintf("denied used=%d remaining=%d retry=never", v.Used, v.Remaining)
	case v.Penalized:
		text = fmt.Sprintf("penalized used=%d remaining=%d retry=%s", v.Used, v.Remaining, span(v.RetryAfter))
	default:
		text = fmt.Sprintf("denied used=%d remaining=%d retry=%s", v.Used, v.Remaining, span(v.RetryAfter))
	}
	text += " reset=" + span(v.ResetAfter)
	if v.LeaseAlreadyOpen {
		text += " already_open"
	}
	if v.PenaltyLeft > 0 {
		text += " penalty=" + span(v.PenaltyLeft)
	}
	return text
}

func span(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}
