"""Where something begins to be wrong: the thresholds of all rules."""

# Inputs: root mean squares beyond which they are not scaled, at once or where the run is in trouble, and their offset.
SCALE, SCALE_IN_TROUBLE, OFFSET, COLUMNS = 30.0, 5.0, 10.0, 1e3
SAME, REPEATED = 0.999, 0.5  # share of constant columns, and of rows that are copies
OUTLIER, BESIDE = 5.0, 2.5  # times (or one over) the gain of the other layers, and their root mean square
EXPLODED = 5.0  # times the loss of knowing nothing, before anything was learned
# Ratio of gradients between layers: in any case, and where nothing is learned; gain of most layers, where 1 to 4 is
# usual, and root mean square of inputs that are not sparse.
UNEVEN, UNEVEN_IF_STUCK, WIDE, DENSE = 1e4, 100.0, 7.0, 0.3
# Share of units of a layer without a gradient: at the start, in the next look too, all but all, and more in the end.
DEAD, STAYS_DEAD, DIED, DYING = 0.5, 0.25, 0.7, 0.6
GROWTH, GROWTH_BY, SOON = 3.0, 0.5, 500  # times the weights at the start, by that part of the run and that step
RESTLESS = 3  # spikes after the beginning
# Rows in a batch, at most: the probe can tell that they are too few; noise may explain what a rate may; all is noise.
SEVERAL, FEW, TINY = 32, 16, 4
ODD = 4.0  # times the loss above which a tenth of the rows lie, over the root of few rows: what odd ones may add
# Times the edge of stability: where the run is in trouble, in any case, and where it is known roughly and all is well.
OVER, FAR_OVER, ROUGHLY_OVER = 1.5, 2.5, 4.0
PASSED, WELL = 0.9, 0.5  # of the edge, in all looks since, and of the loss of knowing nothing: it was a catapult
NOISY, NOISY_IN_TROUBLE, NOISY_BUT_WELL = 8.0, 1.0, 16.0  # noise scale over batch size, while much is left to learn
MISLABELLED, LEARNED = 0.09, 0.5  # share of rows whose label ranks third or worse; median loss, of the reference
# A tenth of the rows lies above so many times the loss of knowing nothing: as it is, and times what twice as many steps
# leave of the loss. A run that ended before that had taken this part of its steps. What a network said at first is
# forgotten after so many, and that part of such rows remains until four times as many.
SURPRISED, STAYS, LATE, SURE, REMAIN = 0.95, 0.92, 0.3, 10, 0.6
SMALL, STILL, RECENT = 0.02, 1.0, 3  # of the edge; times the loss, where a far longer step leads, in the last looks too
# The same for Adam, where rates are smaller than usual, and the loss fell to that share, in its second half; one that
# would halve so often in the run, at its pace, falls fast enough.
STILL_FALLING, USUAL, FALLS, HALVED = 2.0, 5e-4, 0.95, 5.0
UNFINISHED, UNLEARNED = 0.1, 0.25  # of the loss of knowing nothing: there is something, or much, left to learn
# Of the weights at the start, and of the loss of knowing nothing: decay took the rest; of weights, where a loss stays.
LIGHTER, UNDONE, FAR_LIGHTER = 0.5, 0.5, 0.4
SEEN = 0.05  # of the run: one look beyond it, at least
LONG, UNLEARNT = 200, 0.97  # steps after which something must have been learned; of the loss of knowing nothing
UPHILL, MOSTLY = 0.05, 0.9  # cosine of a step with the gradient, and share of the looks: steps climb
QUIET, HALF = 1e-3, 0.5  # of the longest steps that such a gradient gave, since that part of the run: no rate is left
CLIPPED = 0.01  # of the rate times the gradient
APART, TWICE = 10.0, 2  # times the smallest loss of the batches: that of the probe between them, in so many late looks
# Standard errors between the loss of a batch and that of the probe, in so many looks, and on the other side once; one
# is that part of the way from the tenth of rows below to that above, over a root, and that part of the loss at least.
AWAY, THRICE, ASIDE, BETWEEN, EVEN = 4.0, 3, 2.5, 0.39, 0.05
HASTY, BIASED = 20.0, 5.0  # times the steps of the other layers, under Adam; root mean square of biases at the start
STUCK = 0.9  # of the loss of knowing nothing, at the end
# Of losses that the run was told, as they come.
EARLY, AT_ONCE = 0.1, 20  # of the run, and steps at least: its beginning
SPIKE = 0.4  # of that: less is no harm
SURGE, ALONE = 1.5, 3.0  # times what the loss was at first, or what knowing nothing costs; of one step, later on
