// Package storagetest defines what a correct backend is: one suite for each interface of storage, which every backend passes as a whole,
// on a fresh store for each subtest, and benchmarks beside them. It also has what is needed to make a backend fail on purpose (quota.go).
package storagetest
