package admin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// direct are Resets of one store.
type direct struct {
	limiters.Store
	err error
}

func (d direct) Reset(ctx context.Context, keys []limiters.StateName) ([]bool, bool, error) {
	if d.err != nil {
		return nil, false, d.err
	}
	found, err := d.Store.Reset(ctx, keys)
	return found, true, err
}

func (d direct) ResetByEntry(ctx context.Context, domain string, e descriptors.Entry, cursor string) (limiters.Progress, bool, error) {
	if d.err != nil {
		return limiters.Progress{}, false, d.err
	}
	done, err := d.Store.ResetMatching(ctx, descriptors.EntryMatcher(domain, e), cursor)
	return done, true, err
}

// A reset ends the usage, the penalty and the leases of a key.
func TestResetEndsUsagePenaltyAndLeases(t *testing.T) {
	f := newFixture(t, nil)
	for range 6 {
		f.hit(1, "user_id", "42")
		f.hit(1, "banned", "42")
	}
	f.hit(3, "user_id", "42", "lease", "a")
	for descriptor, want := range map[string]int{`[["user_id","42"]]`: 3, `[["banned","42"]]`: 1} {
		var reset api.KeyReset
		if code, text := f.call("POST", resetPath, `{"domain":"shop","descriptor":`+descriptor+`}`, &reset); code != 200 {
			t.Fatal(code, text)
		}
		n := 0
		for _, l := range reset.Limits {
			if l.Reset {
				n++
			}
		}
		if n != want || !reset.Notified {
			t.Errorf("%s: %+v, want %d limits reset", descriptor, reset, want)
		}
		for _, l := range f.peek(descriptor).Limits {
			if l.State.Used != 0 || l.State.Penalty != "0s" || !l.Allowed {
				t.Errorf("after the reset: %+v", l)
			}
		}
	}
	if len(f.changes) != 2 || f.changes[0].Outcome != Done || len(f.changes[0].KeyHash) != 16 || !strings.HasPrefix(f.changes[0].Caller, "token ") {
		t.Errorf("changes %+v, want two, first a done one by a token, with a hash of the key", f.changes)
	}
	if strings.Contains(f.changes[0].Caller, token) || len(f.changes[0].Caller) != len("token 01234567") {
		t.Errorf("who is %q", f.changes[0].Caller)
	}
}

func TestResetByEntryResetsEveryKeyThatContainsIt(t *testing.T) {
	f := newFixture(t, nil)
	f.hit(1, "user_id", "42")
	f.hit(1, "user_id", "42", "lease", "a")
	f.hit(1, "user_id", "421")
	f.hit(1, "banned", "42")
	var reset api.ResetByEntryResult
	if code, text := f.call("POST", resetByEntryPath, `{"domain":"shop","entry":["user_id","42"]}`, &reset); code != 200 {
		t.Fatal(code, text)
	}
	if reset.Reset != 3 || reset.Scanned != 6 || !reset.Done || reset.Cursor != "" {
		t.Errorf("%+v, want 3 of 6 keys reset", reset)
	}
	if f.peek(`[["user_id","421"]]`).Limits[0].State.Used != 1 || f.peek(`[["user_id","42"]]`).Limits[0].State.Used != 0 {
		t.Error("another user was reset, or this one was not")
	}
}

func TestResetsWithoutRulesAreAuditedAsSuch(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Rules = func() *descriptors.Rules { return nil } })
	for path, body := range map[string]string{
		resetPath:        `{"domain":"shop","descriptor":[["user_id","42"]]}`,
		resetByEntryPath: `{"domain":"shop","entry":["user_id","42"]}`,
	} {
		f.changes = nil
		if code, text := f.call("POST", path, body, nil); code != 503 || !strings.Contains(text, "no rules are loaded yet") {
			t.Errorf("%s: got status %d with %s, want 503: no rules are loaded yet", path, code, text)
		}
		if len(f.changes) != 1 || f.changes[0].Detail != "no rules are loaded yet" || f.changes[0].Outcome != Refused {
			t.Errorf("%s: audited as %+v", path, f.changes)
		}
	}
}

func TestBadResetsAreRefusedAndAudited(t *testing.T) {
	for _, c := range []struct {
		path, body string
		err        error
		code       int
		says       string
		outcome    string
	}{
		{resetPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`, nil, 404, "nothing is stored for this key", Refused},
		{resetPath, `{"domain":"shop","descriptor":[["free","42"]]}`, nil, 404, "no limit applies", Refused},
		{resetPath, `{"domain":"shop","descriptor":[["nothing","42"]]}`, nil, 404, "no limit applies", Refused},
		{resetPath, `{"domain":"other","descriptor":[["user_id","42"]]}`, nil, 404, "no rules have the domain", Refused},
		{resetPath, `{"domain":"shop","descriptor":[["user_id"]]}`, nil, 422, "", Refused},
		{resetPath, `{`, nil, 400, "", Refused},
		{resetPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`, errors.New("down"), 503, "the store failed", Failed},
		{resetByEntryPath, `{"domain":"shop","entry":["","42"]}`, nil, 422, "must not be empty", Refused},
		{resetByEntryPath, `{"domain":"shop","entry":["user_id"]}`, nil, 422, "", Refused},
		{resetPath, `{"domain":"shop","descriptor":[["usr_id","42"]]}`, nil, 404, "did you mean", Refused},
		{resetByEntryPath, `{"domain":"other","entry":["user_id","42"]}`, nil, 404, "no rules have the domain", Refused},
		{resetByEntryPath, `{"domain":"shop","entry":["user_id","42"]}`, limiters.ErrHashedKeys, 409, "KEY_HASH_SECRET is set", Refused},
		{resetByEntryPath, `{"domain":"shop","entry":["user_id","42"],"cursor":"x"}`, limiters.ErrCursor, 422, "cursor", Refused},
		{resetByEntryPath, `{"domain":"shop","entry":["user_id","42"]}`, errors.New("down"), 503, "the store failed", Failed},
	} {
		f := newFixture(t, func(o *Options) { o.Resets = direct{o.Store.(limiters.Store), c.err} })
		code, text := f.call("POST", c.path, c.body, nil)
		if code != c.code || !strings.Contains(text, c.says) || strings.Contains(text, "down") {
			t.Errorf("%s %s: %d %s, want %d %q", c.path, c.body, code, text, c.code, c.says)
		}
		if len(f.changes) != 1 || f.changes[0].Outcome != c.outcome || f.changes[0].Caller == "" || f.changes[0].Action != c.path ||
			strings.Contains(f.changes[0].Detail, "42") {
			t.Errorf("%s %s: audited as %+v, want %s", c.path, c.body, f.changes, c.outcome)
		}
	}
}

// A panic may come after a change, so the change is not reported as refused.
func TestPanicOfAResetIsAuditedAsFailed(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Resets = panicking{} })
	if code, text := f.call("POST", resetPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`, nil); code != 500 {
		t.Error(code, text)
	}
	if len(f.changes) != 1 || f.changes[0].Outcome != Failed || f.changes[0].Caller == "" || f.changes[0].Action != resetPath {
		t.Errorf("audited as %+v, want %s", f.changes, Failed)
	}
}

type panicking struct{ Resets }

func (panicking) Reset(context.Context, []limiters.StateName) ([]bool, bool, error) { panic("a bug") }

// The log has the line of a change before the caller has the answer.
func TestChangesAreAuditedBeforeTheAnswer(t *testing.T) {
	var f *fixture
	answered := false
	f = newFixture(t, func(o *Options) {
		audit := o.Audit
		o.Audit = func(c Change) {
			if answered {
				t.Error("audited after the answer")
			}
			audit(c)
		}
	})
	f.hit(1, "user_id", "42")
	f.call("POST", resetPath, `{"domain":"shop","descriptor":[["user_id","42"]]}`, nil)
	answered = true
	if len(f.changes) != 1 {
		t.Errorf("changes %+v, want one", f.changes)
	}
}
