package wiretest

import (
	"fmt"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Action is what happens to a command that a rule is about. It runs on a goroutine of the command's connection, which waits meanwhile;
// commands of several connections run it at the same time. It must not end its goroutine (no t.Fatal). An action that neither answers nor
// cuts leaves the command to the next rule; after the last one it is forwarded, unless it was, and the driver gets the server's reply.
type Action func(e *Exchange)

// Exchange is a command and what becomes of it. It is for the action's goroutine alone, and ends with it.
type Exchange struct {
	Command *Command

	link      *link
	request   message
	reply     message // what the driver will get
	forwarded bool
	cut       bool
	decided   bool // answered or cut: no other rule is asked
}

// Forward sends the command to the server, if it was not sent already, and returns the server's reply. nil: there was none, or none was
// asked for; the driver's connection is then cut.
func (e *Exchange) Forward() bson.Raw {
	if !e.forwarded {
		e.send(e.request)
	}
	return e.document()
}

// ForwardOnly is Forward with other statements in place of the command's; with none, nothing is sent, and the reply is nil.
func (e *Exchange) ForwardOnly(statements []bson.Raw) bson.Raw {
	if e.forwarded || len(statements) == 0 {
		return e.document()
	}
	body, apart, err := e.Command.with(statements)
	if err != nil {
		e.fail(err)
		return nil
	}
	e.send(newMessage(opMsg, e.request.requestID(), 0, body, apart))
	return e.document()
}

// send sends a message to the server and reads its reply.
func (e *Exchange) send(m message) {
	e.forwarded = true
	if _, err := e.link.server.Write(m); err != nil {
		e.Cut()
		return
	}
	if m.moreToCome() {
		return // nobody waits for a reply, and there is none
	}
	reply, err := readMessage(e.link.server)
	if err != nil {
		e.Cut()
		return
	}
	e.reply = reply
}

// document is the reply as it stands.
func (e *Exchange) document() bson.Raw {
	if e.reply == nil {
		return nil
	}
	doc, _, err := e.reply.document()
	if err != nil {
		e.fail(fmt.Errorf("from the server: %w", err))
		return nil
	}
	return doc
}

// Answer gives the driver this reply (a bson.D, bson.M, bson.Raw …), whatever the server said, or without asking it.
func (e *Exchange) Answer(reply any) {
	e.decided = true
	if e.cut {
		return
	}
	raw, err := bson.Marshal(reply)
	if err != nil {
		e.fail(err)
		return
	}
	opcode := int32(opMsg)
	if e.request.opcode() == opQuery {
		opcode = opReply
	}
	e.reply = newMessage(opcode, e.link.p.nextID(), e.request.requestID(), raw, nil)
}

// Cut cuts the driver's connection. What was not forwarded never will be.
func (e *Exchange) Cut() { e.cut, e.decided = true, true }

// Closing is closed when the proxy ends: whoever waits in an action waits for that too.
func (e *Exchange) Closing() <-chan struct{} { return e.link.p.closing }

func (e *Exchange) fail(err error) {
	e.link.p.fault(fmt.Errorf("%s: %w", e.Command, err))
	e.Cut()
}

// Match says which commands a rule is about. The zero Match is about all of them but hello, which drivers send on their own.
type Match struct {
	Command    string              // its name, "hello" included; "": any but hello
	Collection string              // "": any
	If         func(*Command) bool // nil: any. It runs on connections' goroutines.
	Skip       int                 // let so many pass first
	Times      int                 // 0: every one
}

// Rule is a Match with what is to happen.
type Rule struct {
	match   Match
	action  Action
	proxy   *Proxy
	seen    atomic.Int64
	reached chan struct{}
}

// On adds a rule. Rules are asked in the order in which they were added, each command's until one has answered it or cut its connection.
func (p *Proxy) On(m Match, a Action) *Rule {
	r := &Rule{match: m, action: a, proxy: p, reached: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules[:len(p.rules):len(p.rules)], r) // apply may be reading the old ones
	return r
}

// Remove ends the rule. Commands that it already has keep it.
func (r *Rule) Remove() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	var left []*Rule
	for _, other := range r.proxy.rules {
		if other != r {
			left = append(left, other)
		}
	}
	r.proxy.rules = left
}

// Hits is how many commands the rule was applied to, those of this moment included.
func (r *Rule) Hits() int {
	hits := int(r.seen.Load()) - r.match.Skip
	if r.match.Times > 0 {
		hits = min(hits, r.match.Times)
	}
	return max(hits, 0)
}

// Reached is closed when the rule is applied for the first time, before its action runs.
func (r *Rule) Reached() <-chan struct{} { return r.reached }

// take counts a command that the rule is about, and tells whether its turn has come.
func (r *Rule) take(c *Command) bool {
	m := r.match
	if !c.Is(m.Command, m.Collection) || m.If != nil && !m.If(c) {
		return false
	}
	n := int(r.seen.Add(1)) - m.Skip
	if n == 1 {
		close(r.reached)
	}
	return n >= 1 && (m.Times == 0 || n <= m.Times)
}

// apply runs the rules that a command falls under.
func (p *Proxy) apply(e *Exchange) {
	p.mu.Lock()
	rules := p.rules
	p.mu.Unlock()
	for _, r := range rules {
		if r.take(e.Command) {
			r.action(e)
		}
		if e.decided {
			return
		}
	}
}
