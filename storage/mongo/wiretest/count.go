package wiretest

// Count is what went through a proxy, as the driver saw it: with headers, and also where an action answered.
type Count struct {
	Commands int64
	Sent     int64 // bytes that the driver sent
	Received int64 // bytes that the driver was sent, counted before it has them
}

type countKey struct{ name, collection string }

// maxCounts bounds the names that are counted apart; what comes later counts as "other".
const maxCounts = 1000

func (p *Proxy) countCommand(c *Command, size int) {
	p.count(c, Count{Commands: 1, Sent: int64(size)})
}

func (p *Proxy) countReply(c *Command, size int) {
	p.count(c, Count{Received: int64(size)})
}

func (p *Proxy) count(c *Command, more Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := countKey{c.Name, c.Collection}
	if _, known := p.counts[key]; !known && len(p.counts) >= maxCounts {
		key = countKey{"other", ""}
	}
	p.counts[key] = p.counts[key].plus(more)
}

func (c Count) plus(d Count) Count {
	return Count{c.Commands + d.Commands, c.Sent + d.Sent, c.Received + d.Received}
}

// Count adds up the commands of a name on a collection since the start or ResetCounts. "" stands for any collection, and for any name but
// those that drivers send on their own (hello).
func (p *Proxy) Count(command, collection string) (sum Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, n := range p.counts {
		if (&Command{Name: key.name, Collection: key.collection}).Is(command, collection) {
			sum = sum.plus(n)
		}
	}
	return sum
}

// Names returns how many commands of each name there were since the start or ResetCounts, hello included.
func (p *Proxy) Names() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[string]int64)
	for key, n := range p.counts {
		names[key.name] += n.Commands
	}
	return names
}

// ResetCounts forgets what was counted.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}
