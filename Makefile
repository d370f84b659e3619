# The targets of Weir. For each target, tools/ensure finds the tools or installs them into .tools/, and prints one line for each tool.
SHELL    := bash
STORE    ?= memory
ARGS     ?=
FUZZTIME ?= 10s
SEED     ?= $(shell date +%s)000
ROWS     ?=
ROUNDS   ?= 3
SECONDS  ?= 3
RUN      ?=
SOAK     ?= 10m
IMAGE    ?= weir
TAG      ?=
VERSION  ?=

# Without the race detector, which needs cgo, all targets compile with the settings of a release (oci.Compile), so they share each
# compiled package.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
RACE               := CGO_ENABLED=1 go test -race

# The modules besides the product's own.
MODULES := e2e/xds e2e/page e2e/manifests e2e/gateway e2e/containers tools/image tools/release

WHOLE   = $(addprefix ./,$(sort $(dir $(shell grep -rlE --include=*_test.go 'testing\.Short|Sequences|Seeds|limiterstest\.(Random|Run)' pkg internal cmd))))
LONGEST := $(addprefix ./,cmd/server pkg/limiters/redisstore e2e/oracles pkg/conform pkg/descriptors/sources/xds pkg/limiters/guard \
           pkg/limiters/memstore)
RANDOM  := TestStorePassesTheSuite|TestOtherServersPassTheSuite|TestClusterPassesTheSuite|Match(es)?Reference|KeysExpire|LongLog

# Packages whose tests start the built server.
E2E     := $(addprefix ./,e2e e2e/actions e2e/conform e2e/differential e2e/failures e2e/streamdone)

.PHONY: help build image image-load release release-verify demo test test-product test-modules gateway e2e random fuzz faults chaos stores envoys bench bench-scale lint vuln check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the server: ./weir
	go build -o weir ./cmd/server

image: ## build the image for amd64 and arm64 into dist/, without a daemon and a registry: IMAGE=weir TAG=(the version)
	@cd tools/image && go run . -root=../.. -out=../../dist -name='$(IMAGE)' -tag='$(TAG)'

image-load: image ## build the image and load it into the local Docker
	@env=$$(tools/ensure docker) && eval "$$env" && "$$DOCKER" load -i dist/weir-linux-$$(go env GOARCH).tar

release: ## build all files of a release into dist/release/ from a clean tree: VERSION=v1.2.3 (default: the commit's tag)
	@cd tools/release && go run . -root=../.. -out=../../dist/release -version='$(VERSION)'

release-verify: ## build the release in two clones, the second without a cache, and compare the digests; takes minutes
	@cd tools/release && go run . -root=../.. -out=../../dist/release -version='$(VERSION)' -verify

demo: ## show Weir behind a real Envoy; STORE=redis counts in a real Redis; ARGS=--once ends by itself
	@env=$$(tools/ensure envoy $(filter redis,$(STORE))) && eval "$$env" && \
	go build -o bin/demo ./e2e/demo && exec bin/demo --store=$(STORE) $(ARGS)

test: ## run every test on a real Envoy and Redis, the product with the race detector; in containers too if Docker can run
	@go build -ldflags=-w -o bin/weir ./cmd/server
	@env=$$(tools/ensure envoy redis redis-versions cc incumbent chromium docker) && eval "$$env" && \
	export WEIR='$(CURDIR)/bin/weir' GORACE=atexit_sleep_ms=0 && $(MAKE) --no-print-directory -j2 test-product test-modules

# The two parts of make test run at the same time, because many tests wait. They set -vet=off, because make lint vets.

# test-product tests the product with the race detector. With -short, a random test plays a tenth of its sequences, because the race
# detector makes it ten times slower. The slowest packages are first, so that none of them remains for the end.
test-product:
	all=$$(go list ./...) && e2e=$$(go list $(E2E)) && \
	$(RACE) -timeout=30m -short -vet=off -shuffle=on $(LONGEST) $$(grep -vxF "$$e2e" <<<"$$all")
	cd e2e/xds && $(RACE) -timeout=30m -vet=off -shuffle=on ./...

# test-modules tests the server as a process (E2E), where the race detector would observe only the test. It then runs the packages with
# random tests (WHOLE) again, with all sequences; of redisstore it runs only RANDOM, because the other tests take minutes. The other
# modules are last.
test-modules:
	go test -timeout=30m -vet=off -shuffle=on $(E2E) ./internal/socket $(filter-out ./pkg/limiters/redisstore/,$(WHOLE))
	go test -timeout=30m -vet=off -shuffle=on -run='$(RANDOM)' ./pkg/limiters/redisstore
	cd e2e/page && go test -timeout=30m -vet=off -shuffle=on ./...
	cd tools/image && go test -timeout=30m -vet=off -shuffle=on ./...
	cd tools/release && go test -timeout=30m -vet=off -shuffle=on ./...
	cd e2e/manifests && go test -timeout=30m -vet=off -shuffle=on ./...
	$(CONTAINERS)

gateway: ## test Weir under a real Envoy Gateway, which the first run builds in a few minutes
	@env=$$(tools/ensure envoy redis gateway) && eval "$$env" && cd e2e/gateway && go test -timeout=30m -count=1 ./...

# With -count=1, because go test does not notice that the image has changed.
CONTAINERS = tools/with-docker $(SHELL) -c 'cd e2e/containers && go test -timeout=30m -count=1 -shuffle=on ./...'

e2e: ## test the image, Redis and Envoy in containers; finds or starts a Docker daemon, see tools/with-docker
	@env=$$(tools/ensure envoy redis incumbent docker) && eval "$$env" && CONTAINERS_REQUIRED=1 $(CONTAINERS)

random: ## compare the stores with naive models over random sequences that differ in each run: SEED=(the time)
	@env=$$(tools/ensure redis redis-versions) && eval "$$env" && echo 'random: SEED=$(SEED)' && \
	SEED=$(SEED) go test -timeout=30m -count=1 -run='TheSuite|Agree|Match|Snapshot|Expiry|Sweep|DenyCache' \
	  ./pkg/limiters/limiterstest ./pkg/limiters/memstore ./pkg/limiters/guard ./pkg/limiters/split ./pkg/limiters/redisstore

fuzz: ## run every fuzz test for FUZZTIME (10s)
	@tools/fuzz $(FUZZTIME)

faults: ## put mutations into the core, one at a time, and check that a test detects each: RUN=funnel
	@env=$$(tools/ensure redis) && eval "$$env" && go run ./tools/faults -run='$(RUN)'

chaos: ## kill, freeze and disconnect servers under load for half an hour, and write docs/failure-tests.md: RUN=Frozen SOAK=10m
	@env=$$(tools/ensure envoy redis incumbent) && eval "$$env" && \
	go test ./e2e/failures -count=1 -timeout=5h -parallel=1 -v -run='$(RUN)' -full -soak=$(SOAK) -page=$(CURDIR)/docs/failure-tests.md

stores: ## run the tests of the store on each server of docs/stores.md, and write its table: RUN=VALKEY
	@env=$$(tools/ensure redis redis-versions stores) && eval "$$env" && go run ./tools/stores -run='$(RUN)'

envoys: ## test envoy/bootstrap-1.30.yaml and the pages without newer fields on older releases of Envoy: RUN=1.36.4
	@for version in $(or $(RUN),1.36.4 1.37.0 1.38.3 1.39.3); do \
	  env=$$(ENVOY_VERSION=$$version tools/ensure envoy redis) && eval "$$env" && \
	  go test ./e2e -timeout=10m -count=1 -run='^Test(OlderEnvoy|ResponsesPage|SupportFinds|BurstBefore)' -skip='^TestBurst/^bootstrap.yaml' \
	  || exit; done

bench bench-scale: BENCH = @env=$$(tools/ensure envoy redis incumbent) && eval "$$env" && \
	go run ./bench -rows='$(ROWS)' -rounds=$(ROUNDS) -seconds=$(SECONDS)

bench: ## measure Weir, a bare server and envoyproxy/ratelimit, and write docs/benchmarks.md: ROWS='one|five' ROUNDS=3 SECONDS=3
	$(BENCH)
	@go test ./internal/offline/sizing -run 'Figures|Outputs' -update

bench-scale: ## measure the long rows: number of keys, rules and descriptors, skew of users, commands on a recording
	$(BENCH) -scale
	@go test ./internal/offline/sizing -run 'Figures|Outputs' -update

lint: ## run golangci-lint, which vets, and tools/prose on the English of Markdown and comments
	@env=$$(tools/ensure lint prose) && eval "$$env" && "$$GOLANGCI_LINT" run && \
	for m in $(MODULES); do (cd $$m && "$$GOLANGCI_LINT" run --config=$(CURDIR)/.golangci.yml) || exit; done && \
	"$$PROSE_PYTHON" tools/prose --test && "$$PROSE_PYTHON" tools/prose

vuln: ## run govulncheck for known vulnerabilities; needs vuln.go.dev
	@env=$$(tools/ensure vuln) && eval "$$env" && "$$GOVULNCHECK" ./... && \
	for m in $(MODULES); do (cd $$m && "$$GOVULNCHECK" -test ./...) || exit; done

check: ## check formatting, go.mod and the rules in envoy/ and deploy/; needs no server
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "gofmt -w" $$unformatted; exit 1; }
	go mod tidy -diff && for m in $(MODULES); do (cd $$m && go mod tidy -diff) || exit; done
	go build -ldflags=-w -o bin/weir ./cmd/server && bin/weir check envoy/rules.yaml && bin/weir check --strict deploy/k8s/base/rules.yaml
