// Package conn is the connection tier: it holds the clients' connections, checks who they are, cuts what they send into frames, and
// writes what the logic tier has for them. It knows nothing of the logic tier but the interface Logic, which it declares.
//
// In reading order: gateway.go (the engine's callbacks), read.go (bytes to frames), hello.go (sign-in), session.go (what is
// kept for a connection), push.go (deliveries and KICK), loop.go (the one way to a socket), wheel.go (everything that is due at a
// time), drain.go (a planned stop). token.go checks tokens; table.go finds sessions.
//
// # What the engine does, and where it is tested that we live with it
//
// gnet is fast because it leaves out a lot. Each of these was seen to go wrong:
//
//  1. Out of descriptors, an accept ends the whole engine. The cap is well below the limit, OnOpen closes what is above it,
//     and Done tells when the engine ends all the same: TestConnectionCap, TestDescriptorLimit, TestEngineThatEndsIsNoticed.
//  2. Peek, Next and Discard of 0 mean everything: TestEmptyPingDoesNotEatWhatFollows.
//  3. Whole frames that are left behind are not delivered again. A read is always parsed to its last whole frame:
//     TestFramesCutAtEveryByte, TestPipelinedFramesArriveInOrder; and what waited for WELCOME is taken up by us: TestFramesBeforeWelcomeWait.
//  4. Slices of Peek die with Discard. Nothing of ours outlives it: FuzzStream overwrites what is discarded. Logic copies, by contract.
//  5. A Write that fails closes at once, and calls OnClose from within: TestWriteThatFails.
//  6. A Write after that goes to whoever has the descriptor now: TestNothingIsWrittenAfterClose. The same holds for Execute once
//     the engine stops: its descriptor for waking a loop is closed before it says so (Gateway.execute): TestCloseInTheMiddle.
//  7. What a client does not read is kept without a bound: TestSlowReaderAmongOthers, TestSoftBoundSkipsAndTellsToResync,
//     TestStalledReader, TestPingsWithoutReading.
//  8. AsyncWrite's callback does not mean delivered. AsyncWrite is not used: TestWhatIsNotUsed.
//  9. Writev changes its argument and has a limit. It is not used: TestWhatIsNotUsed.
//  10. Ways to write overtake each other. There is one (loop.flush): TestWhatIsNotUsed, TestDeliverConcurrently.
//  11. Work for a loop is done before it reads, for as long as there is any: TestReadsGoOnUnderDeliveries, TestPassYieldsToReads.
//  12. Close drops what the kernel does not take at once, and a reset drops what it took. Last frames are waited for, and then
//     for the client to close: TestKickAfterWelcome, TestErrorArrivesThoughMoreIsSent, TestKickedClientThatStays.
//  13. Stop is no drain: TestDrain, TestDrainThatEnds.
//  14. Listening cannot be stopped; OnOpen refuses: TestDrain.
//  15. A half-close is a close, and the protocol says so: TestHalfCloseIsAClose.
//  16. OnTick is not on a loop, and deadlines are not supported. Each loop does its own tick: TestSilenceCloses,
//     TestHandshakeTimeout, TestFrameTimeout, TestTokenEndsWhileConnected.
//  17. A panic in a callback ends the process: TestPanicsInLogic.
//  18. As many loops as CPUs starve everybody else. The default is half as many: TestDefaultLoops.
//  19. With keep-alive set, a bind that fails has the wrong error. It is not set (heartbeats do that work), and the address is
//     tried first: TestAddressInUse.
//  20. There is no TLS. A balancer ends it; this package has no TLS, WebSocket or PROXY listener yet.
//  21. PROXY headers: see 20. A connection that opens and closes in silence is no error: TestDeliverIgnoresWhatIsGone and others.
//  22. LeastConnections and Register go wrong in a burst. Neither is used; the kernel spreads connections (SO_REUSEPORT):
//     TestWhatIsNotUsed.
package conn
