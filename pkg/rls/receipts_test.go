package rls

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/receipt"
)

var receiptKeys = func() *receipt.Keys {
	keys, err := receipt.ParseKeys([]byte(strings.Repeat("ab", 32)))
	if err != nil {
		panic(err)
	}
	return keys
}()

func receiptsOf(t *testing.T) Receipts {
	t.Helper()
	return Receipts{Header: "x-receipt", Keys: func() *receipt.Keys { return receiptKeys }, Replica: "weir-7d9f8b6c5-x2x4z", KeyHashSecret: []byte("secret")}
}

func TestReceiptDescribesTheDenial(t *testing.T) {
	rules := parsed(t, denials)()
	for _, c := range []struct {
		keys        string
		rule, limit string
		used, max   int64
		reason      string
	}{
		{"once once", "once", "0", 2, 1, "over_limit"},
		{"several several", "several", "1", 2, 1, "over_limit"},
		{"banned banned", "banned", "0", 2, 1, "penalty"},
		{"named", "named", "0", 0, 0, "never_fits"},
		{"nobody!", "", "0", 0, 0, "never_fits"},
	} {
		s, _ := serviceOn(t, denials, decide.Options{}, Options{Receipts: receiptsOf(t)})
		r, err := receiptKeys.Open(headersOf(t, decideKeys(t, s, c.keys))["x-receipt"])
		must.Succeed(t, err)
		rule, limit := rules.LimitByHash(r.Limit)
		if got := fmt.Sprint(limit); rule == nil && c.rule != "" || rule != nil && (rule.Name != c.rule || got != c.limit) {
			t.Errorf("%s: rule %v, limit %d", c.keys, rule, limit)
		}
		entries := []descriptors.Entry{{Key: strings.Fields(strings.TrimSuffix(c.keys, "!"))[0], Value: "v"}}
		counter := descriptors.Key("modes", rule, entries)
		if c.rule == "" {
			counter = string(descriptors.AppendOverrideKey(nil, "modes", nil, entries))
		}
		if got := fmt.Sprintf("%016x", r.Key); got != descriptors.KeyHash([]byte("secret"), counter) {
			t.Errorf("%s: key %s, want that of %s", c.keys, got, counter)
		}
		if age := time.Since(r.Time); r.Used != c.used || r.Max != c.max || r.Reason != c.reason || age < 0 || age > time.Minute ||
			r.Replica != "c5-x2x4z" || fmt.Sprintf("%016x", r.RulesVersion) != rules.Version() {
			t.Errorf("%s: %+v", c.keys, r)
		}
	}
	// The receipt for a limit that came with the request has the limit 0, although a rule matches.
	s, _ := serviceOn(t, denials, decide.Options{}, Options{Receipts: receiptsOf(t)})
	if r, err := receiptKeys.Open(headersOf(t, decideKeys(t, s, "once!"))["x-receipt"]); err != nil || r.Limit != 0 {
		t.Errorf("%v, %+v, want the limit 0", err, r)
	}
	s, _ = serviceOn(t, denials, decide.Options{}, Options{Receipts: Receipts{Header: "x-receipt", Keys: func() *receipt.Keys { return nil }}})
	if h := headersOf(t, decideKeys(t, s, "plain")); h["x-receipt"] != "" {
		t.Errorf("a receipt without keys: %v", h)
	}
}
