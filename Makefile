# `make` alone prints what there is. All of it needs Go; race needs a C compiler too; the tests talk to a server that .ci/services starts,
# which needs Python 3.10 and, the first time, a network. PARLEY_TEST_MONGO set to the address of a server of yours does in its place.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
FUZZTIME ?= 10s
BENCH    ?= chat
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help build test test-quick race cover services services-down fuzz lint bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the server and the load harness into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: ## all tests, with the servers that they need
	.ci/services run go test -timeout 20m ./...

test-quick: ## the tests that need nothing but Go
	PARLEY_TEST_QUICK=1 go test ./...

race: ## all tests under the race detector
	.ci/services run go test -race -timeout 30m ./...

services: ## start the servers that tests need, and leave them running: .services/env has their addresses
	@.ci/services up

services-down: ## stop them
	@.ci/services down

fuzz: ## each fuzz target for FUZZTIME (10s)
	FUZZTIME=$(FUZZTIME) .ci/fuzz

lint: ## gofmt, go vet and golangci-lint
	.ci/lint

bench: build ## a load run against a server of its own: BENCH=chat|connect ARGS='--conns 200 --window 32'
	bin/parley-bench $(BENCH) $(ARGS)

cover: ## tests with coverage; the report is bin/cover.html
	@mkdir -p bin
	.ci/services run go test -timeout 20m -coverpkg=./... -coverprofile=bin/cover.out ./...
	go tool cover -html=bin/cover.out -o bin/cover.html
	@go tool cover -func=bin/cover.out | tail -1

clean: ## remove bin/
	rm -rf bin
