# Everything here needs Go only; race needs a C compiler too. `make` alone prints what there is.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
FUZZTIME ?= 10s
BENCH    ?= chat
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help build test race fuzz lint bench cover clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the server and the load harness into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: ## all tests
	go test ./...

race: ## all tests under the race detector
	go test -race ./...

fuzz: ## each fuzz target for FUZZTIME (10s)
	FUZZTIME=$(FUZZTIME) .ci/fuzz

lint: ## gofmt, go vet and golangci-lint
	.ci/lint

bench: build ## a load run against a server of its own: BENCH=chat|connect ARGS='--conns 200 --window 32'
	bin/parley-bench $(BENCH) $(ARGS)

cover: ## tests with coverage; the report is bin/cover.html
	@mkdir -p bin
	go test -coverpkg=./... -coverprofile=bin/cover.out ./...
	go tool cover -html=bin/cover.out -o bin/cover.html
	@go tool cover -func=bin/cover.out | tail -1

clean: ## remove bin/
	rm -rf bin
