package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/receipt"
)

const receiptRules = `domain: shop
descriptors:
  - key: user_id
    rate_limit: {algorithm: concurrency, concurrent_requests: 2}
  - key: ip
    rate_limits:
      - {unit: minute, unit_multiplier: 5, requests_per_unit: 3}
      - {unit: day, requests_per_unit: 100, name: daily, algorithm: sliding_log}
  - key: tenant
    descriptors:
      - {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 2}}
`

// A receiptCase is a receipt, the arguments beside it and what they print.
type receiptCase struct {
	name   string
	change func(*receipt.Receipt)
	args   func(*Explain)
	want   string // part of the text; or the whole error, if code is Error
	code   Exit
}

func sealReceipt(t *testing.T, rules *descriptors.Rules, keys *receipt.Keys, change func(*receipt.Receipt)) string {
	t.Helper()
	rule := rules.Match("shop", []descriptors.Entry{{Key: "ip", Value: "192.0.2.1"}})
	hash := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 16, 64)
		must.Succeed(t, err)
		return n
	}
	r := receipt.Receipt{
		Limit: rule.LimitHash(1), RulesVersion: hash(rules.Version()), Time: time.Now().Add(-time.Hour), Replica: "weir-x2x4z", Used: 101, Max: 100,
		Reason: "over_limit", Key: hash(descriptors.KeyHash(nil, descriptors.Key("shop", rule, []descriptors.Entry{{Key: "ip", Value: "192.0.2.1"}}))),
	}
	if change != nil {
		change(&r)
	}
	return string(keys.Append(nil, &r))
}

func TestReceiptIsExplained(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		must.Write(t, file, text)
		return file
	}
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	keys, err := receipt.ParseKeys([]byte(key))
	must.Succeed(t, err)
	config, keyFile := path("rules.yaml", receiptRules), path("keys", key+"\n")
	rules := rulesfiletest.Parse(t, receiptRules)
	other, fewer := path("other.yaml", strings.Replace(receiptRules, "100", "200", 1)), path("fewer.yaml", strings.Replace(receiptRules, "name: daily", "name: d", 1))
	override := func(r *receipt.Receipt) {
		r.Limit = 0
		text := descriptors.KeyHash(nil, string(descriptors.AppendOverrideKey(nil, "shop", nil, []descriptors.Entry{{Key: "x", Value: "1"}})))
		r.Key, _ = strconv.ParseUint(text, 16, 64)
	}
	lease := func(r *receipt.Receipt) {
		entries := []descriptors.Entry{{Key: "tenant", Value: "a"}, {Key: "lease", Value: "0c0ffee0"}}
		rule := rules.Match("shop", entries)
		r.Limit = rule.LimitHash(0)
		r.Key, _ = strconv.ParseUint(descriptors.KeyHash(nil, descriptors.Key("shop", rule, entries)), 16, 64)
	}
	for _, c := range []receiptCase{
		{"plain", nil, nil, "reason   over_limit: used 101 of 100\nrule     ip in domain shop (" + config + ":5)\n" +
			"limit    daily: 100 per day, sliding_log\nrules    " + rules.Version() + ": the same as in " + config + "\n", 0},
		{"its descriptor", nil, func(e *Explain) { e.Descriptors = []string{"ip=192.0.2.1"} }, ", the key of ip=192.0.2.1\n", 0},
		{"another user", nil, func(e *Explain) { e.Descriptors = []string{"ip=192.0.2.2"} }, ", which is not the key of ip=192.0.2.2\n", Failed},
		{"another secret", nil, func(e *Explain) { e.Descriptors, e.KeySecret = []string{"ip=192.0.2.1"}, "s3cret" }, ", which is not the key of ip=192.0.2.1\n", Failed},
		{"changed rules", nil, func(e *Explain) { e.Config = []string{other} }, "limit    daily: 200 per day, sliding_log\nrules    " + rules.Version() + ": " + other +
			" has other rules, so the numbers above may differ\n", 0},
		{"the limit does not exist", nil, func(e *Explain) { e.Config = []string{fewer} }, "rule     unknown: these rules have no limit with the hash ", Failed},
		{"the first limit", func(r *receipt.Receipt) {
			r.Limit = rules.Match("shop", []descriptors.Entry{{Key: "ip", Value: "1"}}).LimitHash(0)
		}, nil, "limit    0: 3 per 5 minutes, fixed_window\n", 0},
		{"slots", func(r *receipt.Receipt) {
			r.Limit = rules.Match("shop", []descriptors.Entry{{Key: "user_id", Value: "1"}}).LimitHash(0)
		}, nil, "limit    0: 2 at once, concurrency\n", 0},
		{"a lease", lease, func(e *Explain) { e.Descriptors = []string{"tenant=a,lease=0c0ffee0"} }, ", the key of tenant=a,lease=0c0ffee0\n", 0},
		{"a lease without its id", lease, func(e *Explain) { e.Descriptors = []string{"tenant=a"} }, ", the key of tenant=a\n", 0},
		{"a lease of another tenant", lease, func(e *Explain) { e.Descriptors = []string{"tenant=b"} }, ", which is not the key of tenant=b\n", Failed},
		{"a limit of the request", override, func(e *Explain) { e.Descriptors = []string{"x=1"} },
			"limit    it came with the request, and is not in the rules\n", 0},
		{"no counter was read", func(r *receipt.Receipt) { r.Key, r.Limit, r.Reason = 0, 0, "bad_lease_id" }, func(e *Explain) { e.Descriptors = []string{"ip=192.0.2.1"} },
			"limit    none: the id of the lease has a wrong length\n", 0},
		{"expired", func(r *receipt.Receipt) { r.Time = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) }, nil,
			"the receipt expired: it was issued at 2025-01-02T03:04:05Z, and receipts are valid for 720h0m0s\n", Error},
		{"expired sooner", nil, func(e *Explain) { e.MaxAge = time.Minute }, "and receipts are valid for 1m0s\n", Error},
		{"forged", nil, func(e *Explain) { e.Receipt = e.Receipt[:50] + "AAAA" + e.Receipt[54:] }, "weir: " + receipt.ErrForged.Error() + "\n", Error},
		{"cut", nil, func(e *Explain) { e.Receipt = e.Receipt[:50] }, "weir: " + receipt.ErrMalformed.Error() + "\n", Error},
		{"another key", nil, func(e *Explain) {
			e.Keys = path("new", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32))))
		},
			receipt.ErrUnknownKey.Error() + "\n", Error},
		{"no key file", nil, func(e *Explain) { e.Keys = dir + "/absent" }, "no such file or directory: correct the path\n", Error},
		{"no keys", nil, func(e *Explain) { e.Keys = path("empty", "") }, "the file has no key: write 32 random bytes", Error},
		{"faulty rules", nil, func(e *Explain) { e.Config = []string{path("faulty.yaml", "domain: [")} }, "faulty.yaml:1:9", Error},
		{"a bad descriptor", nil, func(e *Explain) { e.Descriptors = []string{"ip"} }, "has no '='", Error},
	} {
		e := &Explain{rulesFlags: rulesFlags{Config: []string{config}}, Output: "text", receiptFlags: receiptFlags{Receipt: sealReceipt(t, rules, keys, c.change), Keys: keyFile, MaxAge: 720 * time.Hour}}
		if c.args != nil {
			c.args(e)
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: Validate: %v", c.name, err)
		}
		var out, errs bytes.Buffer
		code := Exit(ExitCode(e.Run(t.Context(), Streams{In: strings.NewReader(""), Out: &out, Err: &errs}), &errs))
		said := out.String()
		if c.code == Error {
			said = errs.String()
			if out.Len() > 0 {
				t.Errorf("%s: prints %s", c.name, out.String())
			}
		}
		if code != c.code || !strings.Contains(said, c.want) || strings.Contains(said+errs.String(), key) {
			t.Errorf("%s: exit code %d, want %d:\n%s\nwant %s", c.name, code, c.code, out.String()+errs.String(), c.want)
		}
		if c.code == Error {
			continue
		}
		out.Reset()
		e.Output = "json"
		_ = e.Run(t.Context(), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		var record denialRecord
		decoder := json.NewDecoder(&out)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&record); err != nil || record.LimitHash == "" || record.Max != 100 || (record.KeyMatches == nil) != (len(e.Descriptors) == 0 || record.KeyHash == noKeyHash) {
			t.Errorf("%s: got %+v, error %v, want a LimitHash, a Max of 100, and KeyMatches if a descriptor is given", c.name, record, err)
		}
	}
}

func TestReceiptArgumentErrorsNameTheRemedy(t *testing.T) {
	for want, e := range map[string]Explain{
		"--receipt needs --config with the rules, and cannot be used with --live":                  {receiptFlags: receiptFlags{Receipt: "x", Keys: "k"}},
		"--request cannot be used with --receipt: write the descriptor as user_id=42,action=login": {rulesFlags: rulesFlags{Config: []string{"c"}}, Request: "r", receiptFlags: receiptFlags{Receipt: "x", Keys: "k"}},
		"--receipt needs the keys of receipts: set --keys or RECEIPT_KEYS_FILE":                    {rulesFlags: rulesFlags{Config: []string{"c"}}, receiptFlags: receiptFlags{Receipt: "x"}},
		"a receipt belongs to one descriptor: write exactly one, such as user_id=42,action=login": {
			rulesFlags: rulesFlags{Config: []string{"c"}}, Descriptors: []string{"a=1", "b=1"}, receiptFlags: receiptFlags{Receipt: "x", Keys: "k"},
		},
	} {
		if err := e.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
