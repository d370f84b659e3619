# Weir. What a target needs and the machine lacks is put into .tools/ by tools/ensure, which says what it does.
SHELL    := bash
STORE    ?= memory
ARGS     ?=
FUZZTIME ?= 10s
ROWS     ?=
ROUNDS   ?= 3
SECONDS  ?= 3
RUN      ?=
SOAK     ?= 10m

.PHONY: help build demo test fuzz faults chaos bench bench-scale lint vuln check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the server: ./weir
	go build -o weir ./cmd/server

demo: ## see it work with a real Envoy; STORE=redis: on a real Redis; ARGS=--once: ends by itself
	@env=$$(tools/ensure envoy $(filter redis,$(STORE))) && eval "$$env" && \
	go build -o bin/demo ./e2e/demo && exec bin/demo --store=$(STORE) $(ARGS)

test: ## vet, then every test with the race detector, a real Envoy and a real Redis
	@env=$$(tools/ensure envoy redis cc incumbent) && eval "$$env" && \
	go vet ./... && go test -race -shuffle=on ./... && \
	(cd e2e/xds && go vet ./... && go test -race -shuffle=on ./...) && \
	(cd e2e/manifests && go vet ./... && go test -shuffle=on ./...) # nothing of ours runs at once there, and it is long to build

fuzz: ## every fuzz test for FUZZTIME (10s)
	@tools/fuzz $(FUZZTIME)

faults: ## seed known faults into the core, one at a time: the suite must see each
	@env=$$(tools/ensure redis) && eval "$$env" && go run ./tools/faults

chaos: ## kill, freeze and cut off what Weir stands on, at full length (half an hour), into docs/failure-modes.md: RUN=Frozen SOAK=10m
	@env=$$(tools/ensure envoy redis incumbent) && eval "$$env" && \
	go test ./e2e/faults -count=1 -timeout=5h -parallel=1 -v -run='$(RUN)' -full -soak=$(SOAK) -page=$(CURDIR)/docs/failure-modes.md

bench bench-scale: BENCH = @env=$$(tools/ensure envoy redis incumbent) && eval "$$env" && \
	go run ./bench -rows='$(ROWS)' -rounds=$(ROUNDS) -seconds=$(SECONDS)

bench: ## Weir beside a bare server and the incumbent, into docs/benchmarks.md: ROWS='one|five' ROUNDS=3 SECONDS=3
	$(BENCH)

bench-scale: ## the long rows: by the number of keys, of rules, of descriptors, by the skew of users
	$(BENCH) -scale

lint: ## golangci-lint, by .golangci.yml
	@env=$$(tools/ensure lint) && eval "$$env" && "$$GOLANGCI_LINT" run

vuln: ## govulncheck: known vulnerabilities of what is linked in. It asks vuln.go.dev; CI runs it where that answers
	@env=$$(tools/ensure vuln) && eval "$$env" && "$$GOVULNCHECK" ./... && (cd e2e/xds && "$$GOVULNCHECK" -test ./...) && \
	cd e2e/manifests && "$$GOVULNCHECK" -test ./...

check: ## what needs no server: formatting, go.mod, the rules in envoy/ and deploy/
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "gofmt -w" $$unformatted; exit 1; }
	go mod tidy -diff && (cd e2e/xds && go mod tidy -diff) && (cd e2e/manifests && go mod tidy -diff)
	go run ./cmd/server check envoy/rules.yaml && go run ./cmd/server check --strict deploy/k8s/base/rules.yaml
