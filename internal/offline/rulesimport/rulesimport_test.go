package rulesimport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/envoygen"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

type reader func(name string, data []byte) (*Imported, error)

func nginxReader(name string, data []byte) (*Imported, error) { return Nginx(name, data, "") }

func kongReader(name string, data []byte) (*Imported, error) { return Kong(name, data, "") }

// body returns rules without the comments at their beginning.
func body(text []byte) string {
	_, after, _ := strings.Cut(string(text), "domain: ")
	return "domain: " + after
}

const limitadorSample = `
- namespace: toystore
  max_value: 5
  seconds: 60
  name: admins
  conditions:
    - "descriptors[0]['req.method'] == 'POST'"
    - "descriptors[0].user_id == \"admin\""
- namespace: toystore
  max_value: 100
  seconds: 3600
  conditions: ["descriptors[0]['req.method'] == 'POST'"]
  variables: ["descriptors[0].user_id"]
- namespace: toystore
  max_value: 1000
  seconds: 90
  variables:
    - descriptors[0].user_id
- namespace: toystore
  max_value: 9
  seconds: 86400
`

const limitadorResource = `
apiVersion: limitador.kuadrant.io/v1alpha1
kind: Limitador
metadata: {name: limitador}
spec:
  limits:
    - {namespace: a, max_value: 10, seconds: 1, variables: [app_id], conditions: ['req.method == "GET" && req.path == "/toy"']}
`

const nginxSample = `
# a site
events { worker_connections 1024; }
http {
    limit_req_zone $binary_remote_addr zone=perip:10m rate=1r/s;
    limit_req_zone "$http_x_api_key" zone=apikey:10m rate=30r/m;
    limit_conn_zone ${server_name} zone=perserver:10m;
    limit_conn perserver 100;
    log_format main '$remote_addr - "$request" }';
    server {
        server_name shop.example;
        location /login/ {
            limit_req zone=perip burst=5 nodelay;
            limit_req zone=apikey;
        }
        location ^~ /api/ { limit_req zone=perip burst=5 nodelay; limit_req_status 429; }
        location / { proxy_pass http://backend; }
    }
}
`

// Envoy takes the route of a shorter prefix for a location without a zone.
const nginxExempt = `limit_req_zone $remote_addr zone=one:1m rate=1r/s;
limit_req_zone $remote_addr zone=two:1m rate=2r/s;
server { location / { limit_req zone=one; try_files $uri @app; } location /static/ { } location /x/ { limit_req zone=two; }
location = /healthz { } location @app { }
location ~ \.png$ { } }
`

// The output of nginx -T: an include names the other files, whose paths are absolute.
const nginxDumped = `nginx: configuration file /etc/nginx/nginx.conf test is successful
# configuration file /etc/nginx/nginx.conf:
http {
    include mime.types;
    limit_req_zone $remote_addr zone=all:1m rate=5r/s;
    limit_req zone=all;
    include /etc/nginx/conf.d/*.conf;
    include /etc/nginx/sites/*;
}

# configuration file /etc/nginx/mime.types:
types { text/html html; }

# configuration file /etc/nginx/conf.d/shop.conf:
limit_req_zone $remote_addr zone=login:1m rate=1r/s;
server { location / { } location /login { include conf.d/login.inc; } }

# configuration file /etc/nginx/conf.d/login.inc:
limit_req burst=2 zone=login nodelay;
`

// Zones with one key.
const nginxPair = `limit_req_zone $remote_addr zone=a:1m rate=10r/s; limit_req_zone $remote_addr zone=b:1m rate=10r/s;` +
	`limit_req_zone $remote_addr zone=c:1m rate=5r/s; limit_conn_zone $host zone=k:1m; `

const kongSample = `
_format_version: "3.0"
services:
- name: shop
  url: http://shop.example
  plugins:
  - {name: rate-limiting, config: {second: 5, hour: 10000, limit_by: ip, policy: redis}}
  routes:
  - name: login
    paths: [/login]
    plugins:
    - name: rate-limiting
      config: {minute: 5, month: 1000, limit_by: header, header_name: X-User-ID, policy: redis}
plugins:
- {name: rate-limiting, enabled: false, config: {second: 1}}
- {name: cors}
- name: rate-limiting
  config: {minute: 60, policy: redis}
`

const gatewaySample = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: limits, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]
  rateLimit:
    type: Global
    global:
      rules:
      - clientSelectors:
        - headers: [{name: X-Plan, value: free}, {name: x-user-id, type: Distinct}]
          methods: [{value: GET}, {value: POST}]
          path: {type: PathPrefix, value: /api/}
        limit: {requests: 10, unit: Hour}
      - clientSelectors: [{sourceCIDR: {type: Distinct, value: 10.1.0.0/16}}]
        limit: {requests: 3, unit: Second}
        shared: true
        shadowMode: true
        cost: {request: {from: Number, number: 0}, response: {from: Metadata, metadata: {namespace: io.envoy.ai_gateway, key: tokens}}}
      - limit: {requests: 100, unit: Minute}
        clientSelectors: [{path: {}}]
---
kind: Service
`

// The rules of configurations as people have them.
func TestImportsMakeRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		read   reader
		text   string
		want   string
		flags  string // that the comment must have
		notes  string
		domain string
	}{
		{name: "limitador", read: Limitador, text: limitadorSample, flags: "--from generic_key=constant", notes: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", want: `domain: toystore
descriptors:
  - key: req.method
    value: POST
    descriptors:
      - key: user_id
        value: admin
        rate_limits:
          - {name: admins, unit: minute, requests_per_unit: 5, window_start: first_hit, count_denied: false}
          - {unit: hour, requests_per_unit: 100, window_start: first_hit, count_denied: false}
      - key: user_id
        rate_limit: {unit: hour, requests_per_unit: 100, window_start: first_hit, count_denied: false}
  - key: user_id
    rate_limit: {unit: second, unit_multiplier: 90, requests_per_unit: 1000, window_start: first_hit, count_denied: false}
  - key: generic_key
    value: toystore
    rate_limit: {unit: day, requests_per_unit: 9, window_start: first_hit, count_denied: false}
`},
		{name: "limitador resource", read: Limitador, text: limitadorResource, want: `domain: a
descriptors:
  - key: req.method
    value: GET
    descriptors:
      - key: req.path
        value: /toy
        descriptors:
          - key: app_id
            rate_limit: {unit: second, requests_per_unit: 10, window_start: first_hit, count_denied: false}
`},
		{name: "nginx", read: nginxReader, text: nginxSample, flags: "--route /login/:perip=on,apikey=on \\\n#   --route /api/:perip=on \\\n#   --from x_api_key=header:x-api-key\n", notes: "Envoy answers 429", want: `domain: nginx
descriptors:
  - key: perip
    value: "on"
    descriptors:
      - key: remote_address # zone perip, line 5
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 6}
  - key: apikey
    value: "on"
    descriptors:
      - key: x_api_key # zone apikey, line 6
        rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 30, capacity: 1}
  - key: host
    descriptors:
      - key: lease # zone perserver, line 7
        rate_limit: {algorithm: concurrency, concurrent_requests: 100}
`},
		{name: "nginx -T", read: nginxReader, text: nginxDumped, flags: "--route /:all=on \\\n#   --route /login:login=on\n", want: `domain: nginx
descriptors:
  - key: all
    value: "on"
    descriptors:
      - key: remote_address # zone all, line 5
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 5, capacity: 1}
  - key: login
    value: "on"
    descriptors:
      - key: remote_address # zone login, line 15
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 3}
`},
		{name: "nginx, a server without requests outside of /", read: nginxReader, notes: "nginx delays the requests of a burst", text: `limit_req_zone $remote_addr zone=a:1m rate=1r/s;
limit_req_zone $uri zone=b:1m rate=1r/s; limit_conn_zone $host zone=k:1m; limit_conn_zone $remote_addr zone=l:1m;
server { location / { limit_req zone=a burst=0; limit_req zone=b burst=2; limit_conn k 1; limit_conn l 10000; } }`, want: `domain: nginx
descriptors:
  - key: remote_address # zone a, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 1}
    descriptors:
      - key: lease # zone l, line 2
        rate_limit: {algorithm: concurrency, concurrent_requests: 10000}
  - key: path # zone b, line 2
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 3}
  - key: host
    descriptors:
      - key: lease # zone k, line 2
        rate_limit: {algorithm: concurrency, concurrent_requests: 1}
`},
		{name: "nginx locations", read: nginxReader, flags: "--route /:a=on \\\n#   --route /x:b=on", notes: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
			text: `limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_req_zone $uri zone=b:1m rate=2r/s; limit_req_zone $host zone=c:1m rate=3r/s;
server { limit_req zone=a; limit_req zone=c; location / { } location /x { limit_req zone=b; limit_req zone=c; } }`,
			want: `domain: nginx
descriptors:
  - key: a
    value: "on"
    descriptors:
      - key: remote_address # zone a, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 1}
  - key: b
    value: "on"
    descriptors:
      - key: path # zone b, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 2, capacity: 1}
  - key: host # zone c, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 3, capacity: 1}
`},
		{name: "nginx exempts a location", read: nginxReader, text: nginxExempt,
			flags: "--route /:one=on \\\n#   --route /x/:two=on \\\n#   --route /static/:one=off\n",
			notes: "file:1: location = /healthz (line 4) is not under the zone one: give it an Envoy route without the entry (one, on)\n" +
				"file:1: location ~ \\.png$ (line 5) is not under the zone one: give it an Envoy route without the entry (one, on)\n" +
				"file:2: location ~ \\.png$ (line 5) is not under the zone two: give it an Envoy route without the entry (two, on)\n",
			want: `domain: nginx
descriptors:
  - key: one
    value: "on"
    descriptors:
      - key: remote_address # zone one, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 1, capacity: 1}
  - key: two
    value: "on"
    descriptors:
      - key: remote_address # zone two, line 2
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 2, capacity: 1}
`},
		{name: "nginx, the smaller rate has the smaller burst", read: nginxReader,
			text: nginxPair + "limit_req zone=a burst=100 nodelay; limit_req zone=b burst=5 nodelay;",
			want: `domain: nginx
descriptors:
  - key: remote_address # zone b, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 6}
`},
		{name: "nginx, the smaller rate has the larger burst", read: nginxReader, flags: "--from c=constant\n",
			text: nginxPair + "limit_req zone=a burst=5 nodelay; limit_req zone=c burst=500 nodelay;",
			want: `domain: nginx
descriptors:
  - key: remote_address # zone a, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 6}
  - key: c
    value: "on"
    descriptors:
      - key: remote_address # zone c, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 5, capacity: 501}
`},
		{name: "nginx, zones with names that are keys", read: nginxReader,
			flags: "--route /login:zone_host=on,zone_lease=on,zone_zone_host=on \\\n#   --route /login/help:zone_host=off\n",
			text: "limit_req_zone $host zone=host:1m rate=5r/s; limit_conn_zone $remote_addr zone=lease:1m; limit_req_zone $uri zone=zone_host:1m rate=6r/s;\n" +
				"server { location /login { limit_req zone=host; limit_req zone=zone_host; limit_conn lease 3; } location /login/help { } location / { } }",
			want: `domain: nginx
descriptors:
  - key: zone_host
    value: "on"
    descriptors:
      - key: host # zone host, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 5, capacity: 1}
  - key: zone_lease
    value: "on"
    descriptors:
      - key: remote_address
        descriptors:
          - key: lease # zone lease, line 1
            rate_limit: {algorithm: concurrency, concurrent_requests: 3}
  - key: zone_zone_host
    value: "on"
    descriptors:
      - key: path # zone zone_host, line 1
        rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 6, capacity: 1}
`},
		{name: "nginx, a dry run in all servers", read: nginxReader,
			text: nginxPair + "http { limit_req zone=a; server { limit_req_dry_run on; } server { limit_req_dry_run on; } }",
			want: `domain: nginx
descriptors:
  - key: remote_address # zone a, line 1
    shadow_mode: true
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 1}
`},
		{name: "nginx, a dry run that the server ends", read: nginxReader,
			text: nginxPair + "http { limit_req_dry_run on; limit_conn_dry_run on; limit_req zone=a; server { limit_req_dry_run off; } }",
			want: `domain: nginx
descriptors:
  - key: remote_address # zone a, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 1}
`},
		{name: "nginx, a dry run of limit_conn", read: nginxReader,
			text: nginxPair + "http { limit_conn_dry_run on; limit_req zone=a; server { limit_conn k 3; } }",
			want: `domain: nginx
descriptors:
  - key: remote_address # zone a, line 1
    rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 10, capacity: 1}
  - key: host
    descriptors:
      - key: lease # zone k, line 1
        shadow_mode: true
        rate_limit: {algorithm: concurrency, concurrent_requests: 3}
`},
		{name: "kong by path", read: kongReader, notes: "file:2: limit_by path: Kong counts a request with another path by its address, and the rules do not limit it",
			text: "plugins:\n- {name: rate-limiting, config: {minute: 5, policy: redis, fault_tolerant: false, limit_by: path, path: /login}}", want: `domain: kong
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: minute, requests_per_unit: 5, count_denied: false}
`},
		{name: "kong without names", read: kongReader, flags: "--route /a:scope=route:unnamed-1 \\\n#   --route /c:scope=route:unnamed-3\n",
			text: "services: [{name: s, routes: [{paths: [/a], plugins: [{name: rate-limiting, config: {minute: 5, policy: local, limit_by: ip}}]}, {paths: [/b]}, " +
				"{paths: [/c], plugins: [{name: rate-limiting, config: {minute: 9, policy: local, limit_by: ip}}]}]}]", want: `domain: kong
descriptors:
  - key: scope
    value: route:unnamed-1
    descriptors:
      - key: remote_address
        rate_limit: {unit: minute, requests_per_unit: 5, count_denied: false}
  - key: scope
    value: route:unnamed-3
    descriptors:
      - key: remote_address
        rate_limit: {unit: minute, requests_per_unit: 9, count_denied: false}
`},
		{name: "kong", read: kongReader, text: kongSample, flags: "--route /login:scope=route:login \\\n#   --route /PREFIX-OF-SERVICE-SHOP:scope=service:shop", notes: "the plugin is disabled", want: `domain: kong
on_store_error: allow
descriptors:
  - key: scope
    value: route:login
    descriptors:
      - key: x-user-id
        rate_limits:
          - {unit: minute, requests_per_unit: 5, count_denied: false}
          - {unit: month, requests_per_unit: 1000, window_start: calendar, count_denied: false}
  - key: scope
    value: service:shop
    descriptors:
      - key: remote_address
        rate_limits:
          - {unit: second, requests_per_unit: 5, count_denied: false}
          - {unit: hour, requests_per_unit: 10000, count_denied: false}
  - key: scope
    value: global
    descriptors:
      - key: consumer
        rate_limit: {unit: minute, requests_per_unit: 60, count_denied: false}
`},
		{name: "envoy-gateway", read: EnvoyGateway, text: gatewaySample, flags: "--cost 'rule.remote_address=%DYNAMIC_METADATA(io.envoy.ai_gateway:tokens)%'", want: `domain: shop/limits
descriptors:
  - key: rule
    value: shop/limits/0
    descriptors:
      - key: route
        descriptors:
          - key: x-plan
            value: free
            descriptors:
              - key: x-user-id
                descriptors:
                  - key: method
                    values: [GET, POST]
                    share_threshold: true
                    descriptors:
                      - key: path
                        value: /api/*
                        share_threshold: true
                        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: rule
    value: shop/limits/1
    descriptors:
      - key: remote_address
        cidr: [10.1.0.0/16]
        shadow_mode: true
        rate_limit: {unit: second, requests_per_unit: 3}
  - key: rule
    value: shop/limits/2
    descriptors:
      - key: route
        rate_limit: {unit: minute, requests_per_unit: 100}
`},
	} {
		imported, err := c.read("file", []byte(c.text))
		if err != nil {
			t.Errorf("%s: read: %v", c.name, err)
			continue
		}
		text, err := imported.Rules(c.domain)
		if err != nil || len(imported.Problems) > 0 {
			t.Errorf("%s: got error %v, problems %v, want neither", c.name, err, imported.Problems)
			continue
		}
		if got := body(text); got != c.want || !strings.Contains(string(text), c.flags) || !strings.Contains(joined(imported.Notes), c.notes) {
			t.Errorf("%s:\n%s\nnotes %s\nwant\n%s with %s", c.name, text, joined(imported.Notes), c.want, c.flags)
		}
		if _, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "rules.yaml", Data: text}); err != nil || len(warnings) > 0 {
			t.Errorf("%s: the imported rules have warnings %v, error %v, want neither", c.name, warnings, err)
		}
	}
}

func joined(all []string) string { return strings.Join(all, "\n") + "\n" }

// Each limit that rules do not express is named with its line and the reason.
func TestImportErrorsNameMissingValues(t *testing.T) {
	limit := "- {namespace: a, max_value: 1, seconds: 1, "
	zone := "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\n"
	plugin := "plugins:\n- name: rate-limiting\n  config: "
	policy := "kind: BackendTrafficPolicy\nmetadata: {name: p}\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day}, clientSelectors: [{"
	for _, c := range []struct {
		read reader
		text string
		want string
	}{
		{Limitador, limit + "conditions: [\"int(descriptors[0].a) > 5\"]}", "file:1: the condition int(descriptors[0].a) > 5 does not compare"},
		{Limitador, limit + "conditions: [\"descriptors[0].a != 'b'\"]}", "rules match only values"},
		{Limitador, limit + "conditions: [\"descriptors[0].a == 'b*'\"]}", "rules match only values"},
		{Limitador, limit + "conditions: [\"limit.name == 'b'\"]}", "rules match only values"},
		{Limitador, limit + "conditions: [\"descriptors[0].a == 'b' && descriptors[0].a == 'c'\"]}", `no request has a with the values "b" and "c"`},
		{Limitador, limit + "conditions: [\"descriptors[0].a == 'b && c' && descriptors[1].d == 'e'\"]}", "reads descriptors[0] and descriptors[1]"},
		{Limitador, limit + "conditions: [\"descriptors[0].a == 'b' && m == 'c'\"]}", "reads descriptors[0] and a key without descriptors[N]"},
		{Limitador, limit + "conditions: [\"m == 'c' && descriptors[0].a == 'b'\"]}", "reads a key without descriptors[N] and descriptors[0]"},
		{Limitador, limit + "variables: [\"timestamp(descriptors[0].t).getHours()\"]}", "is not a value of a descriptor"},
		{Limitador, limit + "burst: 3}", "burst is not known here"},
		{Limitador, "- {namespace: a, max_value: -1, seconds: 1}", "max_value is not a whole number from 0"},
		{Limitador, "- {namespace: a, max_value: , seconds: 1}", "max_value is not a whole number from 0"},
		{Limitador, "- {namespace: a, max_value: 1.5, seconds: 1}", "max_value is not a whole number from 0"},
		{Limitador, "- {namespace: a, max_value: 1, seconds: 0}", "seconds is not a whole number from 1"},
		{Limitador, "- {max_value: 1, seconds: 1}", "the limit has no namespace"},
		{Limitador, limit + "}\n- {namespace: a, max_value: 2, seconds: 1}", "file:2: the limit has the namespace, conditions, variables and seconds of that in line 1"},
		{nginxReader, "limit_req_zone $limit_key zone=z:1m rate=1r/s;\nlimit_req zone=z;", "file:1: the zone z counts by $limit_key"},
		{nginxReader, "limit_req_zone $cookie_id zone=z:1m rate=1r/s;\nlimit_req zone=z;", "counts by $cookie_id"},
		{nginxReader, "limit_req_zone $binary_remote_addr$http_x_api_key zone=z:1m rate=1r/s;\nlimit_req zone=z;", "file:1: the zone z counts by $binary_remote_addr$http_x_api_key: " +
			"nginx limits a request without $http_x_api_key by the rest of the key, and Envoy sends no descriptor for it"},
		{nginxReader, "limit_req_zone $http_x_api_key-$arg_user zone=z:1m rate=1r/s;\nlimit_req zone=z;", "a request without $arg_user"},
		{nginxReader, "limit_req_zone key-$http_x_api_key zone=z:1m rate=1r/s;\nlimit_req zone=z;", "a request without $http_x_api_key"},
		{nginxReader, zone + "limit_req zone=y;", "file:2: limit_req zone=y: no such zone"},
		{nginxReader, zone + "limit_req zone=z brust=3;", "brust=3 is not known here"},
		{nginxReader, zone + "limit_req burst=3;", "limit_req names no zone"},
		{nginxReader, "stream { limit_conn_zone $remote_addr zone=z:1m;\nserver { limit_conn z 3; } }", "file:2: limit_conn z 3 limits connections of a stream"},
		{nginxReader, zone + "limit_req zone=z; server { location /a { limit_req zone=z burst=3; } }", "the zone z has another burst"},
		{nginxReader, zone + "server { limit_req zone=z; location /a { limit_req_dry_run on; } }", "file:1: the zone z has a dry run in location /a (line 2) " +
			"and not in server (line 2), and a rule has one shadow_mode: the rules have none"},
		{nginxReader, zone + "server { limit_req zone=z; limit_req_dry_run on; location /a { limit_req_dry_run off; } }", "the zone z has a dry run in server"},
		{nginxReader, zone + "limit_req zone=z; limit_rate 10k;", "limit_rate limits bytes of one connection"},
		{nginxReader, zone + zone + "limit_req zone=z;", "file:2: the zone z is defined twice"},
		{nginxReader, "limit_req_zone $remote_addr zone=z:1m;", "want zone=NAME:SIZE and, for requests, a rate"},
		{nginxReader, "limit_conn_zone $remote_addr zone=z:1m;\nlimit_conn z 0;", "want a number from 1 to"},
		{nginxReader, "limit_conn_zone $remote_addr zone=z:1m;\nlimit_conn z 10001;", "file:2: limit_conn z: want a number from 1 to 10000"},
		{kongReader, plugin + "{second: many}", "file:3: second is not a whole number"},
		{kongReader, plugin + "{minute: 0.5}", "file:3: minute is not a whole number"},
		{kongReader, plugin + "{second: 1, limit_by: service}", "file:2: limit_by service: Kong counts each service by itself"},
		{kongReader, plugin + "{policy: local}", "no second, minute"},
		{kongReader, plugin + "{second: 1, limit_by: header}", "limit_by header without header_name"},
		{kongReader, plugin + "{second: 1, limit_by: header, header_name: 'x-*'}", "file:2: the header_name x-* has a *, which is a wildcard in a key"},
		{kongReader, plugin + "{second: 1, limit_by: consumer-group}", "limit_by consumer-group is not imported"},
		{kongReader, plugin + "{second: 1, window_type: sliding}", "window_type is not known here"},
		{kongReader, plugin + "{second: 1, limit_by: path, path: 'a*'}", "limit_by path without a path"},
		{kongReader, "plugins: [{name: rate-limiting-advanced, config: {limit: [1], window_size: [1]}}]", "file:1: the plugin rate-limiting-advanced is not imported"},
		{kongReader, "consumers: [{username: c, plugins: [{name: rate-limiting, config: {day: 1}}]}]\n" + plugin + "{second: 1, limit_by: ip}", "the plugin of the consumer c replaces others"},
		{kongReader, "consumer_groups: [{name: gold, plugins: [{name: rate-limiting, config: {day: 1}}]}]", "Weir knows no groups"},
		{EnvoyGateway, policy + "headers: [{name: a, type: RegularExpression, value: 'b.*'}]}]}]}}}", "a matches by RegularExpression"},
		{EnvoyGateway, policy + "headers: [{name: a, value: b, invert: true}]}]}]}}}", "invert: rules match values"},
		{EnvoyGateway, policy + "headers: [{name: a}]}]}]}}}", `the value "" of a`},
		{EnvoyGateway, policy + "methods: [{}]}]}]}}}", `the method "": a rule takes an empty value for any`},
		{EnvoyGateway, policy + "path: {type: PathPrefix, value: /api}}]}]}}}", "PathPrefix /api matches /api and /api/..."},
		{EnvoyGateway, policy + "path: {value: /api}}]}]}}}", "PathPrefix /api matches /api and /api/..."},
		{EnvoyGateway, policy + "path: {type: RegularExpression, value: /a}}]}]}}}", "the path matches by RegularExpression"},
		{EnvoyGateway, policy + "sourceCIDR: {value: 10.0.0.1}}]}]}}}", "sourceCIDR 10.0.0.1 is not a prefix"},
		{EnvoyGateway, policy + "cookies: []}]}]}}}", "cookies is not known here"},
		{EnvoyGateway, policy + "}, {}]}]}}}", "several clientSelectors"},
		{EnvoyGateway, "kind: BackendTrafficPolicy\nspec: {rateLimit: {local: {rules: []}}}", "local limits, which Envoy decides"},
		{EnvoyGateway, "kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Fortnight}}]}}}", "no unit of second"},
		{EnvoyGateway, "kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day, fromMetadata: {}}}]}}}", "fromMetadata: the limit comes with the request"},
		{EnvoyGateway, "kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day}, cost: {response: {from: Number, number: 3}}}]}}}",
			"file:2: a cost of the request, which is 1 by default, and one of the response"},
	} {
		imported, err := c.read("file", []byte(c.text))
		if err != nil || !strings.Contains(joined(imported.Problems), c.want) {
			t.Errorf("%s\ngives %+v, %v, want %q", c.text, imported, err, c.want)
		}
	}
}

func TestImportsRejectOtherFiles(t *testing.T) {
	for _, c := range []struct {
		read reader
		text string
		want string
	}{
		{Limitador, "", "the file is empty"},
		{Limitador, "a: b", "file:1: want a list of limits"},
		{Limitador, "a: [", "file:1:4: '[' is not closed: add ']'"},
		{nginxReader, "server { listen 80; }", "has no limit_req and no limit_conn"},
		{nginxReader, "http {", "file:1: the file ends before ; or }"},
		{nginxReader, "}", "file:1: unexpected }"},
		{nginxReader, "a 'b", "file:1: the quote has no end"},
		{nginxReader, "a ${b", "${ has no end"},
		{nginxReader, "\nx_by_lua_block { {} '\\'' --[==[ ]] }", "file:2: the block of Lua has no end"},
		{nginxReader, "x_by_lua_block { a()\n", "file:1: the block of Lua has no end"},
		{nginxReader, ";", "unexpected ;"},
		{nginxReader, strings.Repeat("a {", 60), "more than 50 blocks"},
		{nginxReader, "# configuration file /a:\n\n}", "file:3: unexpected }"},
		{nginxReader, "# configuration file /a:\ninclude *;", "file:2: the files include each other"},
		{nginxReader, "# configuration file /a:\n" + strings.Repeat("include b;", 2000) + "\n# configuration file /b:\n" + strings.Repeat("x;", 2000), "more than 1048576 directives"},
		{kongReader, "[]", "want a declarative Kong configuration"},
		{kongReader, "services: &a [{name: x, services: *a}]", "too large or too deep"},
		{kongReader, "services: []", "has no plugin rate-limiting"},
		{EnvoyGateway, "kind: Gateway", "has no BackendTrafficPolicy"},
	} {
		if imported, err := c.read("file", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q gives %+v, %v, want %q", c.text, imported, err, c.want)
		}
	}
	imported, err := Limitador("file", []byte("- {namespace: a, max_value: 1, seconds: 1}\n- {namespace: b, max_value: 1, seconds: 1}"))
	must.Succeed(t, err)
	if _, err := imported.Rules(""); err == nil || !strings.Contains(err.Error(), "set --domain to one of a, b") {
		t.Errorf("without a domain: %v, want the domains to choose from", err)
	}
	if _, err := imported.Rules("c"); err == nil || !strings.Contains(err.Error(), "has no domain c") {
		t.Errorf("an unknown domain: %v, want its name", err)
	}
	if text, err := imported.Rules("b"); err != nil || !strings.Contains(string(text), "domain: b\n") {
		t.Errorf("the domain b: %s, %v, want its rules", text, err)
	}
}

// No file makes an import fail otherwise than by an error, and all rules that it makes load.
func FuzzImport(f *testing.F) {
	readers := []reader{Limitador, nginxReader, kongReader, EnvoyGateway}
	for i, text := range []string{limitadorSample, nginxSample, kongSample, gatewaySample, limitadorResource, nginxDumped} {
		f.Add(byte(i), []byte(text))
	}
	f.Add(byte(0), []byte("- &a [*a]"))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		imported, err := readers[int(kind)%len(readers)]("file", data)
		if err != nil {
			return
		}
		for _, domain := range imported.domains {
			if _, err := imported.Rules(domain.name); err != nil && strings.Contains(err.Error(), "the imported rules") {
				t.Errorf("the parser rejects the imported rules: %v", err)
			}
		}
	})
}

// The flags of a limit that is left out would be an error of weir gen.
func TestLimitsThatAreLeftOutNeedNoFlags(t *testing.T) {
	for _, c := range []struct {
		name, text string
		read       reader
	}{
		{"a key that is not imported", "limit_req_zone a-$http_x zone=z:1m rate=1r/s; limit_req zone=z;", nginxReader},
		{"a zone without a use", "limit_req_zone $http_x zone=z:1m rate=1r/s; limit_req_zone $host zone=a:1m rate=1r/s; limit_req zone=a;", nginxReader},
		{"a use that is not imported", "limit_req_zone $http_x zone=z:1m rate=1r/s; limit_req zone=z brust=3;", nginxReader},
		{"a name with a star", "routes: [{name: 'r*', paths: [/r], plugins: [{name: rate-limiting, config: {minute: 5, limit_by: header, header_name: x}}]}]", kongReader},
		{"an inverted header", "kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day}, " +
			"cost: {request: {from: Number, number: 2}}, clientSelectors: [{headers: [{name: a, value: b, invert: true}]}]}]}}}", EnvoyGateway},
	} {
		imported, err := c.read("file", []byte(c.text))
		must.Succeed(t, err)
		if len(imported.flags) > 0 {
			t.Errorf("%s: got the flags %q, want none", c.name, imported.flags)
		}
	}
}

// A reference of a Kong plugin may be the id of an entity, as in an export of the database.
func TestReferencesByIDMeanTheNamedEntity(t *testing.T) {
	const plugin = "{name: rate-limiting, REFERENCE config: {minute: 5, limit_by: LIMIT}}"
	rulesOf := func(text, limit string) string {
		imported, err := kongReader("kong.yaml", []byte(strings.ReplaceAll(text, "LIMIT", limit)))
		must.Succeed(t, err)
		out, err := imported.Rules("")
		must.Succeed(t, err)
		return string(out)
	}
	for _, c := range []struct{ kind, entity, limit string }{
		{"consumer", "id: 1-2-3, username: bob", "consumer"}, {"service", "id: 1-2-3, name: shop", "ip"}, {"route", "id: 1-2-3, name: r, paths: [/a]", "ip"},
	} {
		nested := rulesOf(fmt.Sprintf("%ss: [{%s, plugins: [%s]}]\n", c.kind, c.entity, strings.Replace(plugin, "REFERENCE ", "", 1)), c.limit)
		for _, reference := range []string{"1-2-3", "{id: 1-2-3}"} {
			byID := rulesOf(fmt.Sprintf("%ss: [{%s}]\nplugins: [%s]\n", c.kind, c.entity, strings.Replace(plugin, "REFERENCE", c.kind+": "+reference+",", 1)), c.limit)
			if byID != nested {
				t.Errorf("%s: %s gives\n%s\nwant\n%s", c.kind, reference, byID, nested)
			}
		}
	}
}

// Kong also distinguishes routes by their hosts, and weir gen by their prefixes.
const kongHosts = `
routes:
- {name: r1, paths: [/a], hosts: [a.test], plugins: [{name: rate-limiting, config: {minute: 5, policy: redis, limit_by: ip}}]}
- {name: r2, paths: [/a], hosts: [b.test], plugins: [{name: rate-limiting, config: {minute: 6, policy: redis, limit_by: ip}}]}
`

func TestRoutesWithOnePrefixAreNoted(t *testing.T) {
	imported, err := kongReader("file", []byte(kongHosts))
	must.Succeed(t, err)
	want := "file:4: route:r2 and another --route have the prefix /a: replace /PREFIX-OF-ROUTE-R2, or move its rate_limits to the Envoy route for route:r2\n"
	if notes := joined(imported.Notes); notes != want {
		t.Errorf("got the notes %s, want %s", notes, want)
	}
}

// Envoy takes the route of a shorter prefix for a Kong route without a plugin. Kong runs only the
// plugin of its service, or the global one.
func TestKongRouteWithoutPluginHasNoScopeOfAShorterPath(t *testing.T) {
	const (
		plugin  = "{name: rate-limiting, config: {minute: 5, policy: redis, limit_by: ip}}"
		api     = "{name: api, paths: [/api], plugins: [" + plugin + "]}"
		public  = "{name: public, paths: [/api/public]}"
		global  = "plugins: [" + plugin + "]\n"
		limited = "name: shop, plugins: [" + plugin + "]"
	)
	for _, c := range []struct {
		name, text string
		flags      []string
		notes      string
	}{
		{name: "no other plugin", text: "routes: [{name: deep, paths: [/api/public/deep]}, " + public + ", " + api + "]",
			flags: []string{"/api:scope=route:api", "/api/public:scope=none"}},
		{name: "a global plugin", text: "routes: [" + api + ", " + public + ", {name: other, paths: [/other]}]\n" + global,
			flags: []string{"/api:scope=route:api", "/:scope=global", "/api/public:scope=global"}},
		{name: "a plugin of the service", text: "services: [{" + limited + ", routes: [" + api + ", " + public + "]}]",
			flags: []string{"/api:scope=route:api", "/PREFIX-OF-SERVICE-SHOP:scope=service:shop", "/api/public:scope=service:shop"}},
		{name: "a plugin of the service that the route refers to",
			text:  "services: [{id: 1-2, " + limited + "}]\nroutes: [" + api + ", {name: public, paths: [/api/public], service: {id: 1-2}}]",
			flags: []string{"/PREFIX-OF-SERVICE-SHOP:scope=service:shop", "/api:scope=route:api", "/api/public:scope=service:shop"}},
		{name: "a route below another one without a plugin",
			text:  "services: [{" + limited + ", routes: [{name: shop, paths: [/shop]}]}]\nroutes: [{name: help, paths: [/shop/help]}]\n" + global,
			flags: []string{"/PREFIX-OF-SERVICE-SHOP:scope=service:shop", "/:scope=global", "/shop:scope=service:shop", "/shop/help:scope=global"}},
		{name: "a route with the same path", text: "routes: [" + api + ",\n{name: public, paths: [/api]}]",
			flags: []string{"/api:scope=route:api"},
			notes: "file:2: route:public and another --route have the prefix /api: give route:public an Envoy route with the entry (scope, none)\n"},
		{name: "a path with a colon", text: "routes: [" + api + ",\n{name: batch, paths: ['/api/v1:batch']}]",
			flags: []string{"/api:scope=route:api"},
			notes: "file:2: weir gen cannot route the prefix /api/v1:batch: give its Envoy route the entry (scope, none)\n"},
	} {
		imported, err := kongReader("file", []byte(c.text))
		must.Succeed(t, err)
		if got := strings.Join(imported.flags, "\n"); got != "--route "+strings.Join(c.flags, "\n--route ") || c.notes != "" && joined(imported.Notes) != c.notes {
			t.Errorf("%s: got the flags\n%s\nand notes %s\nwant %q and %s", c.name, got, joined(imported.Notes), c.flags, c.notes)
		}
	}
}

// gatewayDots has a key that needs an escape in --hits.
const gatewayDots = `
kind: BackendTrafficPolicy
metadata: {name: p, namespace: n}
spec: {rateLimit: {global: {rules: [{clientSelectors: [{headers: [{name: x.user, type: Distinct}]}], cost: {request: {from: Number, number: 3}}, limit: {requests: 3, unit: Hour}, shared: true}]}}}
`

const (
	// gatewayNames names headers and parameters as keys from other sources.
	gatewayNames = `
kind: BackendTrafficPolicy
metadata: {name: p}
spec: {rateLimit: {global: {shared: true, rules: [
  {clientSelectors: [{queryParams: [{name: path, type: Distinct}], path: {value: /files/}}], limit: {requests: 5, unit: Day}},
  {clientSelectors: [{headers: [{name: Rule, type: Distinct}, {name: user, type: Distinct}]}], limit: {requests: 5, unit: Day}},
  {clientSelectors: [{queryParams: [{name: user, type: Distinct}, {name: header_rule, type: Distinct}]}], limit: {requests: 5, unit: Day}}]}}}
`
	kongNames = `
plugins: [{name: rate-limiting, config: {day: 5, limit_by: ip}}]
services:
- {name: a, plugins: [{name: rate-limiting, config: {day: 5, limit_by: header, header_name: Remote_Address}}]}
- {name: b, plugins: [{name: rate-limiting, config: {day: 5, limit_by: header, header_name: scope}}]}
- {name: c, plugins: [{name: rate-limiting, config: {day: 5, limit_by: header, header_name: X-User}}]}
- {name: d, plugins: [{name: rate-limiting, config: {day: 5, limit_by: header, header_name: header_scope}}]}
`
	nginxNames = "limit_conn_zone $http_lease zone=a:1m; limit_req_zone $http_path zone=b:1m rate=1r/s; limit_req_zone $uri zone=c:1m rate=2r/s; " +
		"limit_req_zone $http_user_agent zone=d:1m rate=3r/s; limit_conn a 3; limit_req zone=b; limit_req zone=c; limit_req zone=d; " +
		"limit_req_zone $http_header_path zone=e:1m rate=4r/s; limit_req zone=e;"
)

// A header or a parameter with the name of a key from another source has a key of its own. So a
// client cannot choose the value of the other key.
func TestHeadersAndParametersDoNotTakeOtherKeys(t *testing.T) {
	for text, c := range map[string]struct {
		read reader
		want []string
	}{
		gatewayNames: {EnvoyGateway, []string{"query_path=query:path", "rule=constant", "header_rule=header:rule", "user=header:user",
			"query_user=query:user", "query_header_rule=query:header_rule"}},
		kongNames: {kongReader, []string{"header_remote_address=header:remote_address", "header_scope=header:scope", "header_header_scope=header:header_scope",
			"x-user=header:x-user"}},
		nginxNames: {nginxReader, []string{"header_lease=header:lease", "header_path=header:path", "header_header_path=header:header-path",
			"user_agent=header:user-agent"}},
	} {
		imported, err := c.read("file", []byte(text))
		must.Succeed(t, err)
		var got []string
		for _, f := range imported.flags {
			if from, ok := strings.CutPrefix(f, "--from "); ok {
				got = append(got, from)
			}
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) || len(imported.Problems) > 0 {
			t.Errorf("%s\ngives --from %q, want %q; problems %v", text, got, c.want, imported.Problems)
		}
	}
}

// weir gen would end the prefix at the colon.
func TestLocationWithAColonIsNotedInsteadOfRouted(t *testing.T) {
	imported, err := nginxReader("file", []byte("http { limit_req_zone $host zone=a:1m rate=5r/s; server { location /v1:batch { limit_req zone=a; } location /z {} } }"))
	must.Succeed(t, err)
	const want = "file:1: weir gen cannot route the prefix /v1:batch: give its Envoy route the entry (a, on)\n"
	if got := joined(imported.Notes); !strings.Contains(got, want) || slices.ContainsFunc(imported.flags, func(f string) bool { return strings.Contains(f, "/v1") }) {
		t.Errorf("notes %s and flags %q, want %s and no route", got, imported.flags, want)
	}
}

// weir gen takes the rules with the arguments in their comment.
func TestCommentHasArgumentsOfGen(t *testing.T) {
	for text, read := range map[string]reader{
		limitadorSample: Limitador, limitadorResource: Limitador, nginxSample: nginxReader, nginxExempt: nginxReader,
		nginxPair + "limit_req zone=a burst=5; limit_req zone=c burst=500;": nginxReader, kongSample: kongReader, kongHosts: kongReader,
		gatewaySample: EnvoyGateway, gatewayDots: EnvoyGateway, gatewayNames: EnvoyGateway, kongNames: kongReader, nginxNames: nginxReader,
	} {
		imported, err := read("file", []byte(text))
		must.Succeed(t, err)
		yaml, err := imported.Rules("")
		must.Succeed(t, err)
		rules, err := rulesfile.Parse(rulesfile.File{Name: "rules.yaml", Data: yaml})
		must.Succeed(t, err)
		o := envoygen.Options{Service: "weir:8081", Upstream: "shop:8080"}
		for _, f := range imported.flags {
			flag, value, _ := strings.Cut(strings.ReplaceAll(f, "'", ""), " ")
			switch flag {
			case "--from":
				o.From = append(o.From, value)
			case "--route":
				o.Routes = append(o.Routes, value)
			case "--hits":
				o.Hits = append(o.Hits, value)
			case "--cost":
				o.Cost = append(o.Cost, value)
			default:
				t.Errorf("weir gen has no %s", flag)
			}
		}
		if _, err := envoygen.New(rules, o); err != nil {
			t.Errorf("weir gen rejects the flags: %v, for\n%s", err, yaml)
		}
	}
}

// The output of nginx -T has all files, so no include is missing.
func TestNoteNamesIncludesThatAreMissing(t *testing.T) {
	for text, want := range map[string]string{nginxDumped: "", nginxSample + "include a.conf;": "include a.conf is not read", strings.ReplaceAll(nginxDumped, "mime.types;", "none;"): "include none is not read"} {
		imported, err := nginxReader("file", []byte(text))
		must.Succeed(t, err)
		if notes := joined(imported.Notes); !strings.Contains(notes, want) || want == "" && strings.Contains(notes, "include") {
			t.Errorf("%s\nhas the notes %s, want one with %q", text, notes, want)
		}
	}
}

// The zones of a stream are not those of requests. They are neither imported nor noted as unused.
func TestZonesOfStreamsAreLeftOut(t *testing.T) {
	imported, err := nginxReader("file", []byte("stream { limit_conn_zone $remote_addr zone=z:1m; server { limit_conn z 3; } }\n"+
		"limit_conn_zone $remote_addr zone=z:1m; limit_conn z 2;"))
	must.Succeed(t, err)
	if len(imported.Problems) != 1 || strings.Contains(joined(imported.Notes), "not used") {
		t.Errorf("problems %q and notes %q, want one problem, that of the stream", imported.Problems, imported.Notes)
	}
}

// OpenResty has blocks of Lua, whose braces and quotes are not those of nginx.
func TestBlocksOfLuaAreSkipped(t *testing.T) {
	const lua = `location /a { access_by_lua_block {
  -- isn't a quote, nor is } a brace
  local open, close = "{", '\'}' --[[ several
  lines with " and } ]] if x then y = {[=[ ]] } ]=]} end
} }
server { limit_req zone=y; }
`
	imported, err := nginxReader("file", []byte("limit_req_zone $remote_addr zone=z:1m rate=1r/s;\nlimit_req zone=z;\n"+lua))
	must.Succeed(t, err)
	if problems := joined(imported.Problems); !strings.Contains(problems, "file:8: limit_req zone=y: no such zone") || len(imported.Problems) != 1 {
		t.Errorf("got the problems %q, want that of line 8", problems)
	}
}

// A location whose own limit cannot be imported is under no limit of its server.
func TestLocationWithAProblemInheritsNoLimit(t *testing.T) {
	imported, err := nginxReader("file", []byte("limit_req_zone $remote_addr zone=z:1m rate=1r/s;\n"+
		"server { limit_req zone=z; location / { } location /a { limit_req zone=other; } }"))
	must.Succeed(t, err)
	if text, err := imported.Rules(""); err != nil || !strings.Contains(string(text), "--route /:z=on \\\n#   --route /a:z=off") {
		t.Errorf("got error %v and\n%s\nwant the zone on / and not on /a", err, text)
	}
}

// A list of values may not have one twice.
func TestMethodsThatRepeatAreOneValue(t *testing.T) {
	imported, err := EnvoyGateway("file", []byte("kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day}, "+
		"clientSelectors: [{methods: [{value: GET}, {value: POST}, {value: GET}]}]}]}}}"))
	must.Succeed(t, err)
	if text, err := imported.Rules(""); err != nil || !strings.Contains(string(text), "values: [GET, POST]") {
		t.Errorf("got error %v and\n%s\nwant the values GET and POST", err, text)
	}
}

// kubectl get -o yaml writes one document of kind List.
func TestListOfPoliciesIsImported(t *testing.T) {
	imported, err := EnvoyGateway("file", []byte("kind: List\nitems: [{kind: BackendTrafficPolicy, "+
		"spec: {rateLimit: {global: {rules: [{limit: {requests: 1, unit: Day}}]}}}}]"))
	if err != nil || len(imported.domains) == 0 {
		t.Errorf("%+v, %v, want the domain of the policy", imported, err)
	}
}

// A zone that counts by an unknown key is not in the rules at all, even if it also counts by known
// ones.
func TestZonesWithUnknownKeysAreLeftOut(t *testing.T) {
	for key, want := range map[string]string{"$remote_addr$limit_key": "$limit_key", "$remote_addr$arg_a": "without $arg_a", "$arg_": "$arg_", "a$-b": "has an unknown form"} {
		imported, err := nginxReader("file", []byte("limit_req_zone "+key+" zone=z:1m rate=1r/s; limit_req zone=z;"))
		must.Succeed(t, err)
		text, err := imported.Rules("")
		if len(imported.Problems) != 1 || !strings.Contains(imported.Problems[0], want) || err == nil {
			t.Errorf("%s: got problems %q and the rules\n%s\nwant one problem with %s, and no rules", key, imported.Problems, text, want)
		}
	}
}

// A rule of Envoy Gateway of which a part is missing is not in the rules at all.
func TestNoRuleIsImportedInPart(t *testing.T) {
	const rule = "{limit: {requests: 1, unit: Day}, clientSelectors: [{headers: [{name: a, value: b}, {name: c, value: d, invert: true}]}]}"
	// Rules on one line have the same problem, which is reported once.
	for _, rules := range []string{rule, rule + ", " + rule} {
		imported, err := EnvoyGateway("file", []byte("kind: BackendTrafficPolicy\nspec: {rateLimit: {global: {rules: ["+rules+"]}}}"))
		if err != nil || len(imported.Problems) != 1 || len(imported.domains) > 0 {
			t.Errorf("got %+v, error %v, want one problem and no domain", imported, err)
		}
	}
}
