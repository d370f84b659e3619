package e2e_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const listRules = `domain: weir
descriptors:
  - {key: remote_address, cidr: [10.0.0.0/8, 2001:db8:a::/48]} # no limit
  - {key: remote_address, cidr: [203.0.113.0/24, 2001:db8::/32], rate_limit: &two {unit: hour, requests_per_unit: 2, algorithm: sliding_log}}
  - {key: remote_address, cidr: [203.0.113.128/25], share_threshold: true, rate_limit: *two}
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding_log}}
  - {key: user_id, values: [free, trial], rate_limit: *two}
  - {key: user_id, values: [pro, team], share_threshold: true, rate_limit: *two}
`

// The client's address, as Envoy trusts it, matches a prefix, and a header matches a list of
// values.
func TestEnvoyLimitsAddressesAndLists(t *testing.T) {
	onEachStore(t, listRules, func(t *testing.T, w *harness.Weir) {
		e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
			Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: w.GRPC, Timeout: testTimeout,
			Edit: sendAddress,
		})
		for _, step := range []struct {
			name, address, plan string
			status              int
		}{
			{"a prefix without a limit", "10.1.2.3", "", 200},
			{"its second request", "10.1.2.3", "", 200},
			{"its third", "10.1.2.3", "", 200},
			{"a longer prefix without a limit", "2001:db8:a::1", "", 200},
			{"its second request", "2001:db8:a::1", "", 200},
			{"its third", "2001:db8:a::1", "", 200},
			{"an address in a prefix", "203.0.113.1", "", 200},
			{"the same as IPv4-mapped IPv6", "::ffff:203.0.113.1", "", 200},
			{"one more", "203.0.113.1", "", 429},
			{"another address in the prefix", "203.0.113.2", "", 200},
			{"a prefix that shares its counter", "203.0.113.129", "", 200},
			{"another address", "203.0.113.130", "", 200},
			{"a third address", "203.0.113.131", "", 429},
			{"an IPv6 address", "2001:db8::1", "", 200},
			{"another spelling of it", "2001:0DB8:0:0::01", "", 200},
			{"a third spelling", "2001:db8:0::1", "", 429},
			{"an address in no prefix", "192.0.2.1", "", 200},
			{"one more", "192.0.2.1", "", 429},
			{"a value of a list", "10.0.0.1", "free", 200},
			{"its second request", "10.0.0.1", "free", 200},
			{"its third", "10.0.0.1", "free", 429},
			{"another value of the list", "10.0.0.1", "trial", 200},
			{"a value of a list with one counter", "10.0.0.1", "pro", 200},
			{"another value of it", "10.0.0.1", "team", 200},
			{"one more", "10.0.0.1", "pro", 429},
			{"a value of no list", "10.0.0.1", "org", 200},
		} {
			if got := statusFor(t, e.URL, step.address, step.plan); got != step.status {
				t.Errorf("%s: status %d of %s %s, want %d", step.name, got, step.address, step.plan, step.status)
			}
		}
	})
}

// sendAddress makes Envoy trust one proxy in front, and send the client's address and the user,
// each in a descriptor.
func sendAddress(bootstrap string) string {
	const actions = `                              - actions:
                                  - request_headers: {header_name: x-user-id, descriptor_key: user_id}
                                  - request_headers: {header_name: x-action, descriptor_key: action}
`
	bootstrap = strings.Replace(bootstrap, actions, `                              - actions: [{remote_address: {}}]
                              - actions: [{request_headers: {header_name: x-user-id, descriptor_key: user_id}}]
`, 1)
	const prefix = "                stat_prefix: ingress\n"
	return strings.Replace(bootstrap, prefix, prefix+"                use_remote_address: true\n                xff_num_trusted_hops: 1\n", 1)
}

func statusFor(t *testing.T, url, address, user string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	req.Header.Set("X-Forwarded-For", address)
	if user != "" {
		req.Header.Set("X-User-Id", user)
	}
	res, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	must.Succeed(t, res.Body.Close())
	return res.StatusCode
}
