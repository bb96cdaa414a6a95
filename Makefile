# fusebox. `make` lists the targets.
GO      ?= go
BIN     := bin/fusebox
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
OPA     := v1.22.3
LDFLAGS := -X main.version=$(VERSION)
FUZZTIME ?= 20s
DAY     ?= 1000000
LOAD    ?= 60s

.PHONY: help build run demo page test race check policies alerts api cases day load bench fleet fuzz campaigns clients cover lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/fusebox
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/fusebox

run: build ## start the server with the built-in policy (127.0.0.1:4141 and :4142)
	$(BIN) serve

demo: build ## watch a scripted agent against a misbehaving remote, under 30 s
	$(BIN) demo

page: build ## the operator page in headless Chromium; needs node 20, npm and Chromium
	$(GO) build -o bin/seed ./cmd/fusebox/testdata/seed
	@sh cmd/fusebox/page/browser/run

bin/opa: # the stock opa tool, which the policies are tested with; a few minutes when nothing is cached
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install github.com/open-policy-agent/opa@$(OPA)

test: bin/opa ## run all tests; needs Go and git only
	$(GO) test -timeout 30m ./...
	cd receipts/interop && $(GO) test ./...

race: bin/opa ## run all tests under the race detector, the long single-goroutine ones left out; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -short -timeout 40m ./...

check: lint policies ## formatting, vet, the import law, the policies under stock OPA
	$(GO) test ./cmd/fusebox -run TestHouse -count=1

lint: ## gofmt and go vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...

policies: bin/opa ## check and test policies/ with the stock opa tool
	bin/opa fmt --fail -l policies
	bin/opa check --strict --capabilities rego/capabilities.json -s rego/schemas policies
	bin/opa test --timeout 1m --fail-on-empty --coverage --threshold 95 policies >/dev/null
	bin/opa test --timeout 1m policies

alerts: ## check and test the alert rules with promtool
	@command -v promtool >/dev/null || { echo "make alerts needs promtool, which comes with Prometheus (Debian: apt-get install prometheus)"; exit 1; }
	cd cmd/fusebox/alerts && promtool check rules fusebox.rules.yml && promtool test rules fusebox.test.yml

api: ## write the page of the APIs, cmd/fusebox/API.md
	$(GO) run ./cmd/fusebox api --markdown >cmd/fusebox/API.md.new && mv cmd/fusebox/API.md.new cmd/fusebox/API.md

cases: ## the feared states, with the real bundle, SQLite and table
	$(GO) test ./sdk -run 'TestCases' -v

day: ## generate a day of a million receipts and replay it; a few minutes and 1 GB
	FUSEBOX_DAY=$(DAY) $(GO) test ./cmd/fusebox -run TestReplayOfADay -v -count=1 -timeout 60m

load: ## 1,000 streaming clients at the proxy for LOAD (default 60s), everything going wrong in turn
	FUSEBOX_LOAD=$(LOAD) $(GO) test ./sdk/httpguard -run 'TestLoad$$' -v -count=1 -timeout 30m

bench: ## figures side by side: RATIO name value bound ok|short
	@sh .ci/bench

fleet: ## real processes on a real PostgreSQL, the long forms: outage, budget, queue, partitions, failovers, kills; about ten minutes
	FUSEBOX_LONG=1 CI=true $(GO) test ./sdk -run 'TestFleet|TestSlowAnswer|TestCounts|TestResultDuring|TestWallClock' -v -count=1 -timeout 60m
	FUSEBOX_LONG=1 CI=true $(GO) test ./engine/state/... -v -count=1 -timeout 60m

fuzz: ## every fuzz target for FUZZTIME each (default 20s)
	@sh .ci/fuzz $(FUZZTIME)

campaigns: ## what takes an hour: 100,000 random schedules, 1,000 kills of calls and of a log, the deep walk, 2,000 attacks
	FUSEBOX_RUNS=100000 $(GO) test ./engine -run TestInvariantNothingIsSentTwice -v -timeout 60m
	FUSEBOX_KILLS=1000 $(GO) test ./sdk -run TestKillCampaign -v -timeout 60m
	FUSEBOX_KILLS=1000 FUSEBOX_TAMPER=290 $(GO) test ./receipts -run 'Kill|Tamper' -v -timeout 60m
	FUSEBOX_WALK=150000 $(GO) test ./breaker -run Walk -v -timeout 60m

CLIENTS := sdk/httpguard/clients

clients: $(CLIENTS)/node_modules/.package-lock.json ## real SDKs, frameworks and MCP clients through fusebox; needs Node.js 20 and npm, the first time for minutes
	cd $(CLIENTS) && $(GO) test ./... -count=1 -v -parallel 16 -timeout 20m

$(CLIENTS)/node_modules/.package-lock.json: $(CLIENTS)/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "make clients runs real clients of npm: install Node.js 20 or newer, with npm, and try again"; exit 1; }
	cd $(CLIENTS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

cover: ## coverage of the whole tree, in coverage.out
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -1

clean: ## remove what was built
	rm -rf bin coverage.out
