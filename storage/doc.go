// Package storage says what the server remembers, as small interfaces that are split by what they guarantee: the Log (a durable
// order), the Buckets (compare-and-set on a conversation's tail), the Routes (may forget, must expire) and the Directory
// (slow-changing facts of users). It holds what all backends share: bucket arithmetic and the one projection of a stored message to a
// viewer. storagetest defines what a correct backend is; embedded is the one for a single process.
package storage
