package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// badInputFiles are the files of TestErrorsNameTheRemedy.
var badInputFiles = map[string]string{
	"rules.yaml":       "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
	"two/shop.yaml":    "domain: shop\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
	"two/ugc.yaml":     "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
	"broken.yaml":      "domain: [\n",
	"rules_test.yaml":  "rules: rules.yaml\ntests: [{name: a, steps: [{request: user_id=42, expect: allowed}]}]\n",
	"exists_test.yaml": "",
	"empty":            "",
	"noted":            "{\"t\":\"2026-11-22T10:00:00Z\",\"sample\":1}\n",
	"keys":             "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n",
	"junk.zst":         "\x28\xb5\x2f\xfd\x00garbage",
}

// Each of these errors can be caused by a user. It names the cause, its position and the remedy,
// and does not quote a library.
func TestErrorsNameTheRemedy(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range badInputFiles {
		if folder, _, found := strings.Cut(name, "/"); found {
			must.Succeed(t, os.MkdirAll(folder, 0o700))
		}
		write(t, name, text)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	plain := web.Listener.Addr().String()
	const (
		help         = "weir --help shows the commands, weir "
		sample       = `{"domain":"shop","descriptors":[{"entries":[{"key":"user_id","value":"42"}],"hits_addend":1}]}`
		setAdminAddr = "set ADMIN_ADDR on the server, or correct --server (WEIR_ADMIN_URL)"
		checkAddress = "check the address, that the service listens there by gRPC, and whether it needs --tls"
		recordSome   = "record some with RECORD_PATH, or convert an access log with weir convert"
		passLines    = "pass lines of JSON as RECORD_PATH writes them (weir convert makes them from an access log)"
	)
	for _, c := range []struct{ args, want string }{
		// The files of rules.
		{"explain --config none a=1", "weir: read none: no such file or directory: correct the path"},
		{"explain --config rules.yaml --overlay none a=1", "weir: read none: no such file or directory: correct the path"},
		{"explain --config rules.yaml/x a=1", "weir: read rules.yaml/x: not a directory: correct the path"},
		{"explain --config broken.yaml a=1", "broken.yaml:1:9: '[' is not closed: add ']'"},
		{"explain --config two user_id=42", "weir: the rules have several domains: set --domain to one of shop, ugc"},
		{"gen envoy --config two --upstream shop:8080",
			"weir: the rules have several domains: set --domain to one of shop, ugc"},
		{"explain --config rules.yaml user_id",
			`weir: descriptor "user_id": entry 1, "user_id", has no '=': want key=value (a comma in a value is '\,')`},
		{"explain --config rules.yaml --request none", "weir: read none: no such file or directory: correct the path"},
		{"explain --config rules.yaml --request two", "weir: read two: is a directory: name a file"},
		{"explain --config rules.yaml --request rules.yaml",
			`weir: rules.yaml: not a RateLimitRequest: syntax error (line 1:1): invalid value domain: write one such as ` + sample},
		{"explain --live http://127.0.0.1:6071 --request empty",
			"weir: empty: not a RateLimitRequest: the body is empty: write one such as " + sample},
		{"explain --config rules.yaml --envoy none", "weir: read none: no such file or directory: correct the path"},
		{"explain --config rules.yaml --envoy broken.yaml", "weir: broken.yaml:1:9: '[' is not closed: add ']'"},
		{"explain --config rules.yaml --envoy rules.yaml",
			"weir: rules.yaml:1: neither a bootstrap (static_resources) nor a listener (filter_chains), " +
				"a route configuration (virtual_hosts), a virtual host (domains) or a route (match)"},
		{"explain --config rules.yaml --envoy empty --header x",
			`weir: --header "x": want 'name: value', such as 'x-user-id: 42'; for the pseudo-headers set --path, --method and --host`},
		{"import limitador broken.yaml", "weir: broken.yaml:1:9: '[' is not closed: add ']'"},
		{"import nginx rules.yaml", "weir: rules.yaml:2: unexpected }: pass the output of nginx -T"},
		{"import kong empty", "weir: empty: the file is empty: correct the path"},
		{"import envoy-gateway rules.yaml",
			"weir: rules.yaml has no BackendTrafficPolicy: pass the output of kubectl get backendtrafficpolicies -o yaml"},
		{"test none", "weir: read none: no such file or directory: correct the path"},
		{"test two", "weir: read two: is a directory: name a file"},
		{"test --run zz rules_test.yaml", `weir: no test has a name that matches "zz": correct --run`},
		{"test --junit none/x.xml rules_test.yaml",
			"weir: write none/x.xml: no such file or directory: create the folder, or correct the path"},
		{"test --init rules.yaml none/x.yaml",
			"weir: write none/x.yaml: no such file or directory: create the folder, or correct the path"},
		{"test --init rules.yaml exists_test.yaml", "weir: exists_test.yaml exists: remove it, or choose another name"},
		{"test --init none", "weir: read none: no such file or directory: correct the path"},
		{"check none", "weir: read none: no such file or directory: correct the path"},
		{"suggest --config rules.yaml junk.zst",
			"weir: warning: junk.zst: the recording cannot be read beyond line 0: " +
				"its zstd compression is damaged (window size exceeded)\nweir: no line can be replayed: " + passLines},
		{"suggest --config rules.yaml empty", "weir: empty has no requests: " + recordSome},
		{"simulate --config rules.yaml empty", "weir: empty has no requests: " + recordSome},
		{"simulate --config rules.yaml empty keys",
			"weir: warning: keys:1: no JSON object, or a value of a wrong type (not_json), skipped lines of this kind: 1\n" +
				"weir: no line can be replayed: " + passLines},
		{"diff rules.yaml rules.yaml --against empty --against noted",
			"weir: empty and 1 other have no requests: " + recordSome},
		{"explain --config rules.yaml --receipt x --keys none",
			"weir: the keys of receipts: read none: no such file or directory: correct the path"},
		{"explain --config rules.yaml --receipt x --keys empty",
			"weir: the keys of receipts in empty: the file has no key: write 32 random bytes in base64 or hex, as openssl rand -base64 32 does"},
		{"explain --config rules.yaml --receipt xx --keys keys",
			"weir: this is not a receipt: copy the whole value of the header"},
		{"explain --config none --receipt xx --keys keys", "weir: this is not a receipt: copy the whole value of the header"},
		{"--config rules.yaml --admin-addr=:0 --admin-token-file=none",
			"weir: ADMIN_TOKEN_FILE: the tokens: read none: no such file or directory: correct the path"},

		// Arguments.
		{"explain --config", "weir: --config needs a value\n" + help + "explain --help its arguments"},
		{"explain --config rules.yaml -o yaml a=1",
			"weir: --output must be text or json, not \"yaml\"\n" + help + "explain --help its arguments"},
		{"test -o yaml x", "weir: --output must be text, json or junit, not \"yaml\"\n" + help + "test --help its arguments"},
		{"convert --format yaml x",
			"weir: --format must be envoy, nginx, json or csv, not \"yaml\"\n" + help + "convert --help its arguments"},
		{"test --run [ rules_test.yaml",
			"weir: test: --run: \"[\" is not a regular expression: missing closing ]\n" + help + "test --help its arguments"},
		{"conform --only ( 127.0.0.1:1", "weir: --only: \"(\" is not a regular expression: missing closing )"},
		{"gen", "weir: gen needs envoy or envoyfilter\n" + help + "gen --help its arguments"},
		{"gen envyo", `weir: unknown command "gen envyo": did you mean "gen envoy"?`},
		{"import traefik", `weir: unknown command "import traefik": the commands are limitador, nginx, kong, envoy-gateway`},
		{"import nginx",
			"weir: import nginx needs a file, for example: weir import nginx nginx.conf (- reads standard input)\n" +
				help + "import --help its arguments"},
		{"diff rules.yaml",
			"weir: diff needs two sets of rules, for example: weir diff old.yaml new.yaml --against day.ndjson.zst\n" +
				help + "diff --help its arguments"},
		{"peek user_id=42 action=login",
			"weir: unexpected argument action=login: join the entries of a descriptor with commas, such as a=1,b=2\n" +
				help + "peek --help its arguments"},
		{"version x", "weir: unexpected argument x: remove it\n" + help + "version --help its arguments"},
		{"--port 99999 --config rules.yaml",
			"weir: --port must be a whole number from 0 to 65535, not \"99999\"\n" + help + "serve --help the settings"},
		{"explain --config rules.yaml --domian shop user_id=42",
			"weir: unknown flag --domian, did you mean \"--domain\"?\n" + help + "explain --help its arguments"},

		// Servers.
		{"explain --live http://127.0.0.1:1 --domain shop a=1",
			"weir: the admin API at http://127.0.0.1:1 does not answer: connection refused: set ADMIN_ADDR on the server, or correct --live"},
		{"peek --server http://127.0.0.1:1 a=1",
			"weir: the admin API at http://127.0.0.1:1 does not answer: connection refused: " + setAdminAddr},
		{"reset --server http://127.0.0.1:1 a=1",
			"weir: the admin API at http://127.0.0.1:1 does not answer: connection refused: " + setAdminAddr},
		{"top --server http://127.0.0.1:1",
			"weir: the admin API at http://127.0.0.1:1 does not answer: connection refused: " + setAdminAddr},
		{"peek --server http://weir.invalid:1 a=1",
			"weir: the admin API at http://weir.invalid:1 does not answer: no such host: " + setAdminAddr},
		{"peek --server https://" + plain + " a=1",
			"weir: the admin API at https://" + plain + " does not answer: the server has no TLS: write http://"},
		{"peek --server " + secure.URL + " a=1",
			"weir: the admin API at " + secure.URL + " does not answer: the certificate is signed by an unknown CA: name the CA with --ca"},
		{"peek --server http://127.0.0.1:1 --token-file none a=1",
			"weir: the token: read none: no such file or directory: correct the path"},
		{"peek --server https://127.0.0.1:1 --ca none a=1",
			"weir: the CA file: read none: no such file or directory: correct the path"},
		{"peek --server https://127.0.0.1:1 --cert keys --key keys a=1",
			"weir: the certificate keys with the key keys: no PEM certificate in the first file"},
		{"peek --server shop a=1",
			`weir: --server (WEIR_ADMIN_URL): "shop" is not the URL of an admin API: write it as http://127.0.0.1:6071`},
		{"explain --live shop a=1", `weir: --live: "shop" is not the URL of an admin API: write it as http://127.0.0.1:6071`},
		{"conform 127.0.0.1:1", "weir: 127.0.0.1:1 does not answer: connection refused: " + checkAddress},
		{"conform weir.invalid:1", "weir: weir.invalid:1 does not answer: no such host: " + checkAddress},
		{"conform " + plain, "weir: " + plain + " does not answer: this is not a gRPC server: " + checkAddress},
		{"conform --tls " + plain, "weir: " + plain + " does not answer: the server has no TLS: " + checkAddress},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(t.Context(), "weir", strings.Fields(c.args), &out, &errs); code == 0 {
				t.Error("exit code 0")
			}
			got := strings.TrimSuffix(errs.String(), "\n")
			if _, logged, found := strings.Cut(got, "\trules loaded\t"); found { // weir serve has a log before its error
				_, got, _ = strings.Cut(logged, "\n")
			}
			if got != c.want {
				t.Errorf("printed\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A port that speaks no HTTP/1.1, such as the gRPC port, has a sentence too.
func TestAdminCommandsNameAPortWithoutHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("\x00\x00\x18\x04\x00\x00\x00\x00\x00"))
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}()
	var out, errs bytes.Buffer
	run(t.Context(), "weir", []string{"peek", "--server", "http://" + l.Addr().String(), "a=1"}, &out, &errs)
	want := "weir: the admin API at http://" + l.Addr().String() +
		" does not answer: this port does not speak HTTP/1.1: set ADMIN_ADDR on the server, or correct --server (WEIR_ADMIN_URL)\n"
	if errs.String() != want {
		t.Errorf("printed\n%swant\n%s", &errs, want)
	}
}
