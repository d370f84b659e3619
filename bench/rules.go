package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	domain  = "weir" // the domain of envoy/bootstrap.yaml
	actions = 20
	once    = "once"  // an action that every user may do once an hour
	daily   = "daily" // an action whose counters live for a day
)

// action returns the name of an action whose limit is never reached.
func action(i int) string { return fmt.Sprintf("a%02d", i) }

// firstActions returns the names of the first n actions.
func firstActions(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = action(i)
	}
	return names
}

// leaseLimits are limits whose requests have an id, by the name of the subject.
var leaseLimits = map[string]string{
	"concurrency": "algorithm: concurrency, concurrent_requests: 10000, lease_ttl: 1h",
	"reserve":     "algorithm: funnel, unit: day, requests_per_unit: 1000000, reserve: {ttl: 1h}",
}

// usersPerFile keeps a file within Weir's size limit.
const usersPerFile = 20_000

// writeRules writes rules into a new folder below root, in the layout of envoyproxy/ratelimit. It
// returns the folder. users is the number of users with rules of their own, in addition to the
// general rules. An empty algorithm means a fixed window, the only algorithm of
// envoyproxy/ratelimit. With a name of leaseLimits there is only that limit.
func writeRules(root, algorithm string, users int) (string, error) {
	dir := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	b := &rulesFile{algorithm: algorithm}
	b.begin()
	b.WriteString("  - key: user_id\n    descriptors:\n")
	if limit := leaseLimits[algorithm]; limit != "" {
		fmt.Fprintf(b, "      - key: action\n        value: %s\n        descriptors:\n          - key: lease\n            rate_limit: {%s}\n", daily, limit)
		return dir, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(b.String()), 0o600)
	}
	for _, name := range firstActions(actions) {
		b.limit(name, "minute", 1_000_000)
	}
	b.limit(daily, "day", 1_000_000)
	b.limit(once, "hour", 1)
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(b.String()), 0o600); err != nil {
		return "", err
	}
	for first := 0; first < users; first += usersPerFile {
		b.begin()
		for user := first; user < min(users, first+usersPerFile); user++ {
			fmt.Fprintf(b, "  - key: user_id\n    value: user-%08d\n    descriptors:\n", user)
			b.limit(action(0), "minute", 1_000_000)
		}
		name := filepath.Join(dir, fmt.Sprintf("users%d.yaml", first))
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

type rulesFile struct {
	strings.Builder
	algorithm string
}

func (f *rulesFile) begin() {
	f.Reset()
	fmt.Fprintf(f, "domain: %s\ndescriptors:\n", domain)
}

// limit is a rule for what a user does.
func (f *rulesFile) limit(action, unit string, requests int) {
	fmt.Fprintf(f, "      - key: action\n        value: %s\n        rate_limit: {unit: %s, requests_per_unit: %d", action, unit, requests)
	if f.algorithm != "" {
		fmt.Fprintf(f, ", algorithm: %s", f.algorithm)
	}
	f.WriteString("}\n")
}
