/* Scales what samples of bytes say to a total that is known exactly: calibration to a control total
 * (Deville and Särndal 1992), in the form of the regression estimator.
 *
 * Objects are met at random, one of s bytes with p = 1 - exp(-s/mean), and stand for s/p bytes.
 * What the samples of an epoch add up to differs from the exact total by chance; that difference is
 * divided among the classes by their part in the variance of the sum. So an object that is met for
 * certain, and stands for itself alone, is left as it is, and small objects take what there is. A
 * class's own chance error stays; but the sum is exact, and no class becomes biased (to the order
 * of 1/n for n samples: tests/unit/test-control-total.c).
 *
 * What chance cannot explain is not spread: when more was allocated than the samples can stand for
 * (they began late; an object's bytes were counted before its event came), it is kept for the next
 * epoch, and in the end is told as what no stack stands for. When it is less, all are scaled alike.
 *
 * No clock, thread or memory of its own. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_CONTROL_TOTAL_H
#define CLP_SAMPLER_INPROC_CONTROL_TOTAL_H

#include "sampler/inproc/estimator.h"

/* From so many bytes on an object is met for certain (but for 1 in 22,000). */
#define CLP_CONTROL_CERTAIN 10

struct clp_control {
    double mean;    /* bytes between two samples; 0: no control total is wanted */
    bool random;    /* samples are taken at random; else one a `mean` */
    double carried; /* bytes of the epochs before that no sample stands for */
    double counted; /* all so far */
    /* of the epoch */
    double estimated, variance, skew;
    double shift, pull; /* how a class's bytes change with its reach (control_total.c) */
    double scale;       /* and then all are multiplied by this */
};

/* Of those whose bytes are counted, in one epoch; the samples of the others stay as they are. */
struct clp_control_total {
    double counted; /* exact */
    double sampled; /* by their samples */
};

/* One epoch: begin, add each class as it was sampled, fit; then the factors. */
void clp_control_begin(struct clp_control *c);
void clp_control_add(struct clp_control *c, const struct clp_threshold_totals *t);
/* `total`: NULL when it is not known: nothing changes then. */
void clp_control_fit(struct clp_control *c, const struct clp_control_total *total);
/* What a class's bytes and objects are to be multiplied by: never 0. */
double clp_control_factor(const struct clp_control *c, const struct clp_threshold_totals *t);
/* The bytes that no sample stands for, given away. */
double clp_control_rest(struct clp_control *c);

#endif
