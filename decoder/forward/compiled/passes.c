/* Passes of decoder-only language models (GPT-NeoX, Llama and their relatives) on a CPU: token rows in, logits out.
 *
 * A row has the same bits in every pass, whatever rows stand beside it: each sum runs over its inputs in one fixed
 * order, and a key that a query does not see is skipped or adds an exact zero. Arithmetic is float32; weights may be
 * stored in half precision, from which they are converted exactly.
 *
 * A pass is a sequence of steps, each divided into parts that the threads of a team claim one by one. A thread never
 * waits for another one to begin, only for parts that are being computed; so a busy core delays a pass little.
 *
 * Knows neither Python nor trees: which rows see which is in `visible`. The layouts of the structs are those of
 * `library.py`. Written for Clang's vector extensions; the macros below depend on the instruction set alone.
 */
#ifdef __linux__
#define _GNU_SOURCE /* sched_getcpu */
#endif
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef _WIN32
extern __declspec(dllimport) int __stdcall SwitchToThread(void);
#define EXPORT __declspec(dllexport)
#define yield_core() SwitchToThread()
#else
#include <sched.h>
#define EXPORT __attribute__((visibility("default")))
#define yield_core() sched_yield()
#endif
#ifdef __linux__
#define this_cpu() sched_getcpu()
#else
#define this_cpu() (-1)
#endif
#if defined(__x86_64__)
#define pause_core() __builtin_ia32_pause()
#else
#define pause_core() __asm__ volatile("yield")
#endif

#if defined(__AVX512F__)
#define LANES 16
#define VECTORS 4
#define ROWS 7
#elif defined(__AVX__)
#define LANES 8
#define VECTORS 2
#define ROWS 6
#else
#define LANES 4
#define VECTORS 4
#define ROWS 4
#endif
#define COLUMNS (VECTORS * LANES) /* outputs of a panel */
#define MOST 8                    /* rows of a tile; more than ROWS take half of a panel's vectors at a time */
#define TOGETHER 64               /* rows whose sums are kept while a block of a panel stays in the cache */
#define BLOCK 512                 /* inputs of such a block */
#define QUERIES 8                 /* rows of a block of attention */
#define KEYS 32                   /* keys of such a block */
#define AHEAD 8192                /* bytes by which weights are fetched before they are used */
#define LINE 16                   /* counters of a step, 64 bytes, so that steps share no cache line */
#define SPINS 500                 /* turns of a waiting loop before the core is yielded */
#define YIELDS 200                /* number of times that a helper yields its core before it leaves the pass */
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef double Doubles __attribute__((vector_size(8 * LANES), aligned(8)));
typedef int64_t Longs __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef uint64_t Counters __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef float Four __attribute__((vector_size(16), aligned(4)));
typedef float Eight __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef _Float16 Floats16 __attribute__((vector_size(2 * LANES), aligned(2)));

enum { FLOAT32, BFLOAT16, FLOAT16 };
enum { SET, ADD, GELU, GELU_TANH, TIMES_SILU };

typedef struct {
  const void *weights; /* [panels][inputs][COLUMNS]; for the order of bfloat16 weights, see `load_weights` */
  const float *bias;   /* [panels][COLUMNS] */
  int32_t inputs, panels, number;
} Matrix;

typedef struct {
  const float *weight, *bias; /* bias: NULL for RMS norms */
} Norm;

typedef struct {
  Norm attention_norm, mlp_norm;
  Norm query_norm, key_norm; /* of each head; without a weight: none */
  Matrix inward, outward, up, down;
  int32_t window; /* tokens that a query sees, itself included; 0: all */
} Layer;

typedef struct {
  int32_t layer_count, width, inner, heads, groups, head, rotated;
  int32_t parallel, gated, activation; /* gated: up has alternating panels of gate and up columns */
  int32_t vocabulary, embedding_number;
  float epsilon, scale;
  const void *embedding; /* [vocabulary][width] */
  const Layer *layers;
  Norm last_norm;
  Matrix output;
} Model;

typedef struct {
  const float *const *offsets; /* of each row, or NULL */
  const float *factors;        /* [rows], or NULL */
  int32_t *tokens;             /* [rows][count] */
  float *logprobs, *own_logprobs; /* [rows][count]; own: NULL if not asked for */
  int32_t count;
} Best;

typedef struct {
  atomic_int open, inside; /* whether helpers may enter, and how many have entered */
} Gate;

typedef struct {
  const Model *model;
  int32_t *tokens, *positions;       /* [rows] */
  const uint8_t *visible;            /* [rows][recent] */
  const int64_t *stored_positions;   /* [used + rows]; NULL if no layer has a window */
  const float *rotations;            /* [position][rotated / 2][2]: cosines and sines */
  float *store;                      /* [layers][2][heads][capacity][head] */
  const float *const *taps;          /* of each layer: where its input rows are copied, or NULL */
  float *residual;                   /* [rows][padded width] */
  float *normed, *normed_mlp;        /* [rows][padded width] */
  float *attended;                   /* [rows][padded queries, keys and values] */
  float *hidden;                     /* [rows][padded inner] */
  float *logits;                     /* [rows][padded vocabulary] */
  float *scores;                     /* [threads][QUERIES][scores_stride] */
  int64_t capacity, used, scores_stride;
  int32_t rows, recent, first_logits;
  const Best *best;     /* filled from the logits; may be NULL */
  atomic_int *counters; /* [steps][LINE], zero; NULL for a single thread */
  Gate gate;
} Pass;

/* Numbers */

INLINE Vector load(const float *at) { return *(const Vector *)at; }
INLINE void store(float *at, Vector x) { *(Vector *)at = x; }
INLINE Vector all(float x) { return x - (Vector){0}; }
INLINE Vector either(Integers mask, Vector yes, Vector no) {
  return (Vector)(((Integers)yes & mask) | ((Integers)no & ~mask));
}

INLINE int bytes(const int number) { return number == FLOAT32 ? 4 : 2; }

/* Neighbouring vectors of bfloat16 weights are stored as one, lane by lane in turn: the low half of each word belongs to
 * the first, the high half to the second. So each takes one operation. */
INLINE void load_weights(Vector *here, const char *at, const int first, const int vectors, const int number) {
  for (int i = 0; i < vectors; i++) {
    const int vector = first + i;
    if (number == FLOAT32) here[i] = ((const Vector *)at)[vector];
    else if (number == FLOAT16) here[i] = __builtin_convertvector(((const Floats16 *)at)[vector], Vector);
    else {
      const Words both = ((const Words *)at)[vector / 2];
      here[i] = (Vector)(vector % 2 ? both & 0xffff0000 : both << 16);
    }
  }
}

INLINE float load_weight(const void *weights, int64_t index, const int number) {
  if (number == FLOAT32) return ((const float *)weights)[index];
  if (number == FLOAT16) return (float)((const _Float16 *)weights)[index];
  uint32_t word = (uint32_t)((const uint16_t *)weights)[index] << 16;
  float weight;
  memcpy(&weight, &word, 4);
  return weight;
}

/* The sums of a vector's lanes, four lanes at a time: lane i of the result is the sum of all lanes i + 4n. */
INLINE Four folded(Vector x) {
#if LANES == 16
  Eight half = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
#elif LANES == 8
  return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
  return x;
#endif
}

INLINE float sum_of(Vector x) {
  Four four = folded(x);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/* `sum_of` of four vectors. */
INLINE Four sums_of(Vector a, Vector b, Vector c, Vector d) {
  Four w = folded(a), x = folded(b), y = folded(c), z = folded(d);
  Four first = __builtin_shufflevector(w, x, 0, 4, 1, 5) + __builtin_shufflevector(w, x, 2, 6, 3, 7);
  Four second = __builtin_shufflevector(y, z, 0, 4, 1, 5) + __builtin_shufflevector(y, z, 2, 6, 3, 7);
  return __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
}

INLINE Vector exponential(Vector x) {
  x = either(x < all(-87.0f), all(-87.0f), x); /* a NaN stays */
  x = either(x > all(88.0f), all(88.0f), x);
  const Vector magic = all(12582912.0f);
  Vector whole = (x * all(1.44269504f) + magic) - magic;
  Vector rest = x - whole * all(0.693359375f);
  rest = rest - whole * all(-2.12194440e-4f);
  Vector sum = all(1.9875691500e-4f);
  sum = sum * rest + all(1.3981999507e-3f);
  sum = sum * rest + all(8.3334519073e-3f);
  sum = sum * rest + all(4.1665795894e-2f);
  sum = sum * rest + all(1.6666665459e-1f);
  sum = sum * rest + all(5.0000001201e-1f);
  sum = sum * rest * rest + rest + all(1.0f);
  return sum * (Vector)((__builtin_convertvector(whole, Integers) + 127) << 23);
}

/* Error function: odd and even polynomials of degrees 13 and 8 on [-4, 4], as in Eigen. */
INLINE Vector error_function(Vector x) {
  x = either(x > all(-4.0f), x, all(-4.0f));
  x = either(x < all(4.0f), x, all(4.0f));
  Vector square = x * x;
  Vector above = all(-2.72614225801306e-10f);
  above = above * square + all(2.77068142495902e-08f);
  above = above * square + all(-2.10102402082508e-06f);
  above = above * square + all(-5.69250639462346e-05f);
  above = above * square + all(-7.34990630326855e-04f);
  above = above * square + all(-2.95459980854025e-03f);
  above = above * square + all(-1.60960333262415e-02f);
  Vector below = all(-1.45660718464996e-05f);
  below = below * square + all(-2.13374055278905e-04f);
  below = below * square + all(-1.68282697438203e-03f);
  below = below * square + all(-7.37332916720468e-03f);
  below = below * square + all(-1.42647390514189e-02f);
  return x * above / below;
}

INLINE Vector activated(Vector x, const int activation) {
  if (activation == GELU) return all(0.5f) * x * (all(1.0f) + error_function(x * all(0.70710678f)));
  if (activation == GELU_TANH) {
    Vector twice = all(1.59576912f) * (x + all(0.044715f) * x * x * x);
    return x - x / (all(1.0f) + exponential(twice));
  }
  return x / (all(1.0f) + exponential(-x)); /* SiLU */
}

/* Matrix products */

/* Adds the products of some inputs to the sums of `vectors` vectors of a panel, from vector `first` on. */
INLINE void add_products(Vector sums[][VECTORS], const float *x, int64_t stride, const char *weights, int from, int to,
                         const int rows, const int first, const int vectors, const int number) {
  for (int input = from; input < to; input++) {
    const char *at = weights + (int64_t)input * COLUMNS * bytes(number);
    if (first == 0)
      for (int byte = 0; byte < COLUMNS * bytes(number); byte += 64) __builtin_prefetch(at + AHEAD + byte, 0, 3);
    Vector here[VECTORS];
    load_weights(here, at, first, vectors, number);
    for (int row = 0; row < rows; row++) {
      Vector value = all(x[row * stride + input]);
      for (int i = 0; i < vectors; i++) sums[row][i] += value * here[i];
    }
  }
}

INLINE void finish(float *out, const Vector *sums, const float *bias, const int mode) {
  for (int i = 0; i < VECTORS; i++) {
    Vector sum = sums[i] + load(bias + i * LANES), before = load(out + i * LANES);
    if (mode == ADD) sum += before;
    else if (mode == TIMES_SILU) sum *= activated(before, TIMES_SILU);
    else if (mode != SET) sum = activated(sum, mode);
    store(out + i * LANES, sum);
  }
}

INLINE void tile(const float *x, int64_t stride, const char *weights, Vector (*kept)[VECTORS], int from, int to,
                 const int rows, const int number) {
  /* The sums of more than ROWS rows fit into the registers for half of the vectors. */
  const int vectors = rows > ROWS ? VECTORS / 2 : VECTORS;
  for (int first = 0; first < VECTORS; first += vectors) {
    Vector sums[MOST][VECTORS];
    for (int row = 0; row < rows; row++)
      for (int i = 0; i < vectors; i++) sums[row][i] = kept[row][first + i];
    add_products(sums, x, stride, weights, from, to, rows, first, vectors, number);
    for (int row = 0; row < rows; row++)
      for (int i = 0; i < vectors; i++) kept[row][first + i] = sums[row][i];
  }
}

#define TILE(count) \
  case count: tile(at, stride, weights, kept + row, from, to, count, number); break;

INLINE void panel_of(const Matrix *matrix, int panel, const float *x, int64_t stride, float *out, int64_t out_stride,
                     int rows, const int mode, const int number) {
  const int inputs = matrix->inputs, block = rows <= MOST ? inputs : BLOCK;
  const char *weights = (const char *)matrix->weights + (int64_t)panel * inputs * COLUMNS * bytes(number);
  const float *bias = matrix->bias + panel * COLUMNS;
  Vector kept[TOGETHER][VECTORS];
  memset(kept, 0, rows * sizeof kept[0]);
  for (int from = 0; from < inputs; from += block) {
    const int to = inputs - from < block ? inputs : from + block;
    for (int row = 0, left = (rows + MOST - 1) / MOST, size; row < rows; row += size, left--) {
      const float *at = x + row * stride;
      size = (rows - row + left - 1) / left;
      switch (size) {
        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8)
      }
    }
  }
  for (int row = 0; row < rows; row++) finish(out + row * out_stride, kept[row], bias, mode);
}

/* Columns of one panel of x W^T + b for up to TOGETHER rows; `out` begins at the panel's columns. */
INLINE void product(const Matrix *matrix, int panel, const float *x, int64_t stride, float *out, int64_t out_stride,
                    int rows, const int mode) {
  if (matrix->number == FLOAT32) panel_of(matrix, panel, x, stride, out, out_stride, rows, mode, FLOAT32);
  else if (matrix->number == BFLOAT16) panel_of(matrix, panel, x, stride, out, out_stride, rows, mode, BFLOAT16);
  else panel_of(matrix, panel, x, stride, out, out_stride, rows, mode, FLOAT16);
}

/* One function for each mode, so that the steps share its code. */
static void product_set(const Matrix *m, int panel, const float *x, int64_t s, float *out, int64_t t, int rows) {
  product(m, panel, x, s, out, t, rows, SET);
}
static void product_added(const Matrix *m, int panel, const float *x, int64_t s, float *out, int64_t t, int rows) {
  product(m, panel, x, s, out, t, rows, ADD);
}
static void product_gelu(const Matrix *m, int panel, const float *x, int64_t s, float *out, int64_t t, int rows) {
  product(m, panel, x, s, out, t, rows, GELU);
}
static void product_tanh(const Matrix *m, int panel, const float *x, int64_t s, float *out, int64_t t, int rows) {
  product(m, panel, x, s, out, t, rows, GELU_TANH);
}
static void product_silu(const Matrix *m, int panel, const float *x, int64_t s, float *out, int64_t t, int rows) {
  product(m, panel, x, s, out, t, rows, TIMES_SILU);
}

/* Sizes of buffers */

INLINE int64_t padded(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS * COLUMNS; }
INLINE int64_t query_columns(const Model *m) { return (int64_t)m->groups * m->heads * m->head; }
INLINE int64_t attention_stride(const Model *m) { return padded(query_columns(m) + 2 * (int64_t)m->heads * m->head); }

/* Norms */

static void normalise(const Norm *norm, const float *x, float *y, int width, float epsilon) {
  Vector sums = {0};
  float mean = 0, rest = 0;
  int column;
  if (norm->bias) {
    for (column = 0; column + LANES <= width; column += LANES) sums += load(x + column);
    for (; column < width; column++) rest += x[column];
    mean = (sum_of(sums) + rest) / width;
  }
  sums = (Vector){0};
  rest = 0;
  for (column = 0; column + LANES <= width; column += LANES) {
    Vector off = load(x + column) - all(mean);
    sums += off * off;
  }
  for (; column < width; column++) rest += (x[column] - mean) * (x[column] - mean);
  const float scale = 1.0f / sqrtf((sum_of(sums) + rest) / width + epsilon);
  for (column = 0; column < width; column++) {
    float value = (x[column] - mean) * scale * norm->weight[column];
    y[column] = norm->bias ? value + norm->bias[column] : value;
  }
}

/* Attention */

static void rotate(float *head, const float *rotations, int half) {
  for (int pair = 0; pair < half; pair++) {
    float first = head[pair], second = head[pair + half];
    float cosine = rotations[2 * pair], sine = rotations[2 * pair + 1];
    head[pair] = first * cosine - second * sine;
    head[pair + half] = second * cosine + first * sine;
  }
}

/* A step: normalises and rotates the queries and keys of a row, scales the queries, and stores keys and values. */
static void rotate_and_store(const Pass *pass, const Layer *layer, int number, int row, int thread) {
  const Model *m = pass->model;
  float *columns = pass->attended + row * attention_stride(m);
  const int queries = m->groups * m->heads, half = m->rotated / 2, head = m->head;
  const float *rotations = pass->rotations + (int64_t)pass->positions[row] * m->rotated;
  for (int at = 0; at < queries + m->heads; at++) {
    const Norm *norm = at < queries ? &layer->query_norm : &layer->key_norm;
    float *here = columns + (int64_t)at * head;
    if (norm->weight) normalise(norm, here, here, head, m->epsilon);
    rotate(here, rotations, half);
    if (at < queries)
      for (int i = 0; i < head; i++) here[i] *= m->scale;
  }
  for (int part = 0; part < 2; part++)
    for (int at = 0; at < m->heads; at++) {
      const int64_t stored = ((int64_t)(number * 2 + part) * m->heads + at) * pass->capacity + pass->used + row;
      memcpy(pass->store + stored * head, columns + (int64_t)(queries + part * m->heads + at) * head, head * 4);
    }
}

INLINE float rest_of_score(const float *query, const float *key, const int head) {
  float rest = 0;
  for (int i = head / LANES * LANES; i < head; i++) rest += query[i] * key[i];
  return rest;
}

INLINE Vector products(const float *query, const float *key, const int head) {
  Vector sums = {0};
  for (int i = 0; i + LANES <= head; i += LANES) sums += load(query + i) * load(key + i);
  return sums;
}

/* Scores of a query with consecutive keys. */
INLINE void score(float *scores, const float *query, const float *keys, int64_t count, const int head) {
  int64_t key = 0;
  for (; key + 4 <= count; key += 4) {
    Vector sums[4];
    for (int i = 0; i < 4; i++) sums[i] = products(query, keys + (key + i) * head, head);
    *(Four *)(scores + key) = sums_of(sums[0], sums[1], sums[2], sums[3]);
  }
  for (; key < count; key++) scores[key] = sum_of(products(query, keys + key * head, head));
  if (head % LANES)
    for (key = 0; key < count; key++) scores[key] += rest_of_score(query, keys + key * head, head);
}

/* Adds the weighted values of consecutive keys to `out`, and the weights to `total`, one key after the other. */
INLINE void add_values(float *out, float *total, const float *weights, const float *values, int64_t count,
                       const int head) {
  int i = 0;
  for (; i + 4 * LANES <= head; i += 4 * LANES) {
    Vector sums[4];
    for (int j = 0; j < 4; j++) sums[j] = load(out + i + j * LANES);
    for (int64_t key = 0; key < count; key++)
      for (int j = 0; j < 4; j++) sums[j] += all(weights[key]) * load(values + key * head + i + j * LANES);
    for (int j = 0; j < 4; j++) store(out + i + j * LANES, sums[j]);
  }
  for (; i + LANES <= head; i += LANES) {
    Vector sums = load(out + i);
    for (int64_t key = 0; key < count; key++) sums += all(weights[key]) * load(values + key * head + i);
    store(out + i, sums);
  }
  for (; i < head; i++)
    for (int64_t key = 0; key < count; key++) out[i] += weights[key] * values[key * head + i];
  for (int64_t key = 0; key < count; key++) *total += weights[key];
}

/* First of the keys before the last `recent` ones that a query at `position` sees; their positions ascend. */
static int64_t first_key(const Pass *pass, int window, int position, int64_t certain) {
  int64_t low = 0, high = certain;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (pass->stored_positions[middle] > position - window) high = middle;
    else low = middle + 1;
  }
  return low;
}

/* Turns scores into weights: exponentials of their distance from the highest; exactly zero for hidden keys. */
INLINE void weigh(float *scores, int64_t count) {
  const Vector nothing = all(-INFINITY);
  for (int64_t i = count; i < count + LANES; i++) scores[i] = -INFINITY;
  Vector highest = nothing;
  for (int64_t i = 0; i < count; i += LANES) highest = either(load(scores + i) > highest, load(scores + i), highest);
  float most = highest[0];
  for (int lane = 1; lane < LANES; lane++) most = highest[lane] > most ? highest[lane] : most;
  for (int64_t i = 0; i < count; i += LANES) {
    Vector here = load(scores + i);
    store(scores + i, either(here == nothing, (Vector){0}, exponential(here - all(most))));
  }
}

/* Attention of one head for up to QUERIES rows from `row` on; the output replaces the queries. Keys and values are read
 * in blocks of KEYS for all rows, which stay in the nearest cache. */
INLINE void attend_head(const Pass *pass, const Layer *layer, int number, int row, int query, float *scores,
                        const int head) {
  const Model *m = pass->model;
  const int64_t certain = pass->used + pass->rows - pass->recent, stride = pass->scores_stride;
  const int64_t place = ((int64_t)(number * 2) * m->heads + query / m->groups) * pass->capacity;
  const float *keys = pass->store + place * head, *values = keys + (int64_t)m->heads * pass->capacity * head;
  const int rows = pass->rows - row < QUERIES ? pass->rows - row : QUERIES;
  const int64_t end = pass->used + row + rows; /* a row sees no later row */
  int64_t first[QUERIES], start = end;
  float *out[QUERIES], totals[QUERIES] = {0};
  for (int i = 0; i < rows; i++) {
    first[i] = layer->window ? first_key(pass, layer->window, pass->positions[row + i], certain) : 0;
    start = first[i] < start ? first[i] : start;
    out[i] = pass->attended + (row + i) * attention_stride(m) + (int64_t)query * head;
  }
  for (int64_t from = start; from < end; from += KEYS)
    for (int i = 0; i < rows; i++) {
      const int64_t low = from > first[i] ? from : first[i], last = end - rows + i + 1;
      const int64_t high = from + KEYS < last ? from + KEYS : last;
      if (low < high) score(scores + i * stride + low - start, out[i], keys + low * head, high - low, head);
    }
  for (int i = 0; i < rows; i++) {
    float *here = scores + i * stride - start;
    const uint8_t *seen = pass->visible + (int64_t)(row + i) * pass->recent - certain;
    const int64_t last = end - rows + i + 1;
    for (int64_t key = first[i] > certain ? first[i] : certain; key < last; key++)
      if (!seen[key] ||
          (layer->window && pass->stored_positions[key] <= pass->positions[row + i] - layer->window))
        here[key] = -INFINITY;
    weigh(here + first[i], last - first[i]);
    memset(out[i], 0, head * sizeof(float));
  }
  for (int64_t from = start; from < end; from += KEYS)
    for (int i = 0; i < rows; i++) {
      const int64_t low = from > first[i] ? from : first[i], last = end - rows + i + 1;
      const int64_t high = from + KEYS < last ? from + KEYS : last;
      if (low < high)
        add_values(out[i], totals + i, scores + i * stride + low - start, values + low * head, high - low, head);
    }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < head; j++) out[i][j] /= totals[i];
}

static void attend(const Pass *pass, const Layer *layer, int number, int row, int query, float *scores) {
  switch (pass->model->head) {
    case 64: attend_head(pass, layer, number, row, query, scores, 64); break;
    case 80: attend_head(pass, layer, number, row, query, scores, 80); break;
    case 96: attend_head(pass, layer, number, row, query, scores, 96); break;
    case 128: attend_head(pass, layer, number, row, query, scores, 128); break;
    default: attend_head(pass, layer, number, row, query, scores, pass->model->head);
  }
}

/* Steps of a pass. Each computes one of its parts. */

typedef void Step(const Pass *pass, const Layer *layer, int number, int part, int thread);

static void embed(const Pass *pass, const Layer *layer, int number, int row, int thread) {
  const Model *m = pass->model;
  float *out = pass->residual + row * padded(m->width);
  const int64_t from = (int64_t)pass->tokens[row] * m->width;
  for (int column = 0; column < m->width; column++)
    out[column] = load_weight(m->embedding, from + column, m->embedding_number);
}

static void norm_attention(const Pass *pass, const Layer *layer, int number, int row, int thread) {
  const Model *m = pass->model;
  const int64_t at = row * padded(m->width);
  if (pass->taps && pass->taps[number])
    memcpy((float *)pass->taps[number] + (int64_t)row * m->width, pass->residual + at, m->width * 4);
  normalise(&layer->attention_norm, pass->residual + at, pass->normed + at, m->width, m->epsilon);
  if (m->parallel) normalise(&layer->mlp_norm, pass->residual + at, pass->normed_mlp + at, m->width, m->epsilon);
}

static void norm_mlp(const Pass *pass, const Layer *layer, int number, int row, int thread) {
  const Model *m = pass->model;
  const int64_t at = row * padded(m->width);
  normalise(&layer->mlp_norm, pass->residual + at, pass->normed_mlp + at, m->width, m->epsilon);
}

/* A part of a product: the columns of a panel for up to TOGETHER rows. */
typedef struct {
  int panel, first, rows;
} Place;

INLINE int groups(int rows) { return (rows + TOGETHER - 1) / TOGETHER; }

INLINE Place place(int rows, int part) {
  const int panel = part / groups(rows), first = part % groups(rows) * TOGETHER;
  return (Place){panel, first, rows - first < TOGETHER ? rows - first : TOGETHER};
}

static void inward(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const int64_t width = padded(pass->model->width), columns = attention_stride(pass->model);
  const Place at = place(pass->rows, part);
  product_set(&layer->inward, at.panel, pass->normed + at.first * width, width,
              pass->attended + at.first * columns + at.panel * COLUMNS, columns, at.rows);
}

static void up(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const Model *m = pass->model;
  const int64_t width = padded(m->width), inner = padded(m->inner);
  const Place at = place(pass->rows, part);
  const float *x = pass->normed_mlp + at.first * width;
  float *out = pass->hidden + at.first * inner + at.panel * COLUMNS;
  if (m->gated) {
    product_set(&layer->up, 2 * at.panel, x, width, out, inner, at.rows);
    product_silu(&layer->up, 2 * at.panel + 1, x, width, out, inner, at.rows);
  } else if (m->activation == GELU) product_gelu(&layer->up, at.panel, x, width, out, inner, at.rows);
  else product_tanh(&layer->up, at.panel, x, width, out, inner, at.rows);
}

static void attention(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  /* All rows of a head come one after the other, so that its keys and values stay in the cache. */
  const int blocks = (pass->rows + QUERIES - 1) / QUERIES;
  float *scores = pass->scores + thread * QUERIES * pass->scores_stride;
  attend(pass, layer, number, part % blocks * QUERIES, part / blocks, scores);
}

static void outward(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const int64_t width = padded(pass->model->width), columns = attention_stride(pass->model);
  const Place at = place(pass->rows, part);
  product_added(&layer->outward, at.panel, pass->attended + at.first * columns, columns,
                pass->residual + at.first * width + at.panel * COLUMNS, width, at.rows);
}

static void down(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const int64_t width = padded(pass->model->width), inner = padded(pass->model->inner);
  const Place at = place(pass->rows, part);
  product_added(&layer->down, at.panel, pass->hidden + at.first * inner, inner,
                pass->residual + at.first * width + at.panel * COLUMNS, width, at.rows);
}

static void outward_and_down(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  outward(pass, layer, number, part, thread);
  down(pass, layer, number, part, thread);
}

static void inward_and_up(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const int inwards = layer->inward.panels * groups(pass->rows);
  if (part < inwards) inward(pass, layer, number, part, thread);
  else up(pass, layer, number, part - inwards, thread);
}

static void norm_last(const Pass *pass, const Layer *layer, int number, int row, int thread) {
  const Model *m = pass->model;
  const int64_t at = (row + pass->first_logits) * padded(m->width);
  normalise(&m->last_norm, pass->residual + at, pass->normed + at, m->width, m->epsilon);
}

static void output(const Pass *pass, const Layer *layer, int number, int part, int thread) {
  const Model *m = pass->model;
  const int64_t width = padded(m->width), vocabulary = padded(m->vocabulary);
  const Place at = place(pass->rows - pass->first_logits, part);
  product_set(&m->output, at.panel, pass->normed + (pass->first_logits + at.first) * width, width,
              pass->logits + at.first * vocabulary + at.panel * COLUMNS, vocabulary, at.rows);
}

/* Choice of children */

/* Scores of a row of tokens: (logits + offset) * factor. */
typedef struct {
  const float *logits, *offset; /* offset: NULL for none */
  float factor;
} Scores;

INLINE Vector scores_at(const Scores *row, int64_t i) {
  const Vector here = load(row->logits + i);
  return (row->offset ? here + load(row->offset + i) : here) * all(row->factor);
}

INLINE float score_at(const Scores *row, int64_t i) {
  return (row->offset ? row->logits[i] + row->offset[i] : row->logits[i]) * row->factor;
}

/* The largest score of a row; NaN if the row has a NaN or an infinity that is not negative, or no finite score. */
static float highest_score(const Scores *row, int64_t count) {
  const Vector nothing = all(-INFINITY);
  Vector highest = nothing;
  Integers strange = {0};
  float most = -INFINITY;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Vector here = scores_at(row, i);
    highest = either(here > highest, here, highest);
    strange |= (here != here) | (here == -nothing);
  }
  int bad = __builtin_reduce_or(strange);
  for (int lane = 0; lane < LANES; lane++) most = highest[lane] > most ? highest[lane] : most;
  for (; i < count; i++) {
    const float here = score_at(row, i);
    most = here > most ? here : most;
    bad |= here != here || here == INFINITY;
  }
  return bad || most == -INFINITY ? NAN : most;
}

/* The number that turns scores into log-probabilities when it is subtracted, in two parts. They are NaN and 0 for a row
 * without a highest score. */
typedef struct {
  float most, log_sum;
} Softmax;

static Softmax softmax(const Scores *row, int64_t count) {
  const Vector nothing = all(-INFINITY);
  const float most = highest_score(row, count);
  if (most != most) return (Softmax){NAN, 0};
  Vector sums = {0};
  float total = 0;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Vector here = scores_at(row, i);
    sums += either(here == nothing, (Vector){0}, exponential(here - all(most)));
  }
  for (; i < count; i++) {
    const float here = score_at(row, i);
    total += here == -INFINITY ? 0 : expf(here - most);
  }
  return (Softmax){most, logf(sum_of(sums) + total)};
}

/* A token in descending order of scores, of equal scores the lower one first. */
typedef struct {
  float score;
  int32_t token;
} Ranked;

/* The first token after `before`; token 0 if there is none. */
static Ranked next_best(const Scores *row, int32_t count, Ranked before) {
  Vector highest = all(-INFINITY);
  Integers tokens;
  float most = -INFINITY;
  int32_t i = 0;
  for (int lane = 0; lane < LANES; lane++) tokens[lane] = lane;
#define AFTER(here, at) (((here) < before.score) | (((here) == before.score) & ((at) > before.token)))
  for (; i + LANES <= count; i += LANES, tokens += LANES) {
    const Vector here = scores_at(row, i);
    highest = either(AFTER(here, tokens) & (here > highest), here, highest);
  }
  for (int lane = 0; lane < LANES; lane++) most = highest[lane] > most ? highest[lane] : most;
  for (; i < count; i++) {
    const float here = score_at(row, i);
    most = AFTER(here, i) && here > most ? here : most;
  }
  for (int lane = 0; lane < LANES; lane++) tokens[lane] = lane;
  for (i = 0; i + LANES <= count; i += LANES, tokens += LANES) {
    const Vector here = scores_at(row, i);
    if (__builtin_reduce_or((here == most) & AFTER(here, tokens))) break;
  }
  for (; i < count; i++)
    if (score_at(row, i) == most && AFTER(most, i)) return (Ranked){most, i};
#undef AFTER
  return (Ranked){most, 0};
}

/* Truncation by top-k, and by top-p within the top-k */

typedef struct {
  float temperature;
  int32_t top_k; /* 0: all */
  double top_p;  /* 1: all */
} Truncation;

/* The kept tokens: those whose logit is larger than `least`, and of those whose logit equals it the ones up to `last`. */
typedef struct {
  float least;
  int32_t last;
} Kept;

typedef struct {
  int64_t count;
  double weight;
} Above;

/* Number and weight of the tokens before a token in descending order of logits, of equal logits the lower one first. */
static Above ahead(const float *logits, const float *weights, int32_t count, float logit, int32_t token) {
  Integers number = {0}, tokens;
  Doubles sums = {0};
  Above found = {0};
  int32_t i = 0;
  for (int lane = 0; lane < LANES; lane++) tokens[lane] = lane;
  for (; i + LANES <= count; i += LANES, tokens += LANES) {
    const Vector here = load(logits + i);
    const Integers larger = (here > all(logit)) | ((here == all(logit)) & (tokens < token));
    number -= larger;
    sums += __builtin_convertvector(either(larger, load(weights + i), (Vector){0}), Doubles);
  }
  for (int lane = 0; lane < LANES; lane++) {
    found.count += number[lane];
    found.weight += sums[lane];
  }
  for (; i < count; i++)
    if (logits[i] > logit || (logits[i] == logit && i < token)) {
      found.count++;
      found.weight += weights[i];
    }
  return found;
}

/* Number and weight of the tokens whose logit is larger than `limit`. */
static Above above(const float *logits, const float *weights, int32_t count, float limit) {
  return ahead(logits, weights, count, limit, 0);
}

/* Floats in the order of integers, and back. */
INLINE int32_t ordered(int32_t bits) { return bits ^ (bits >> 31 & INT32_MAX); }

INLINE float float_at(int32_t place) {
  const int32_t bits = ordered(place);
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

INLINE int32_t place_of(float number) {
  int32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return ordered(bits);
}

/* The largest logit that is at most `limit`. */
static float next_logit(const float *logits, int32_t count, float limit) {
  Vector highest = all(-INFINITY);
  float most = -INFINITY;
  int32_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Vector here = load(logits + i);
    highest = either((here <= all(limit)) & (here > highest), here, highest);
  }
  for (int lane = 0; lane < LANES; lane++) most = highest[lane] > most ? highest[lane] : most;
  for (; i < count; i++) most = logits[i] <= limit && logits[i] > most ? logits[i] : most;
  return most;
}

/* The smallest logit above which there are fewer than `most` tokens, and less weight than `share`. */
static float least_kept(const float *logits, const float *weights, int32_t count, float highest, int64_t most,
                        double share) {
  int64_t low = place_of(-INFINITY), high = place_of(highest), beyond_low = count, beyond_high = 0;
  while (high - low > 1 && beyond_low - beyond_high > 1) {
    const int64_t middle = low + (high - low) / 2;
    const Above found = above(logits, weights, count, float_at((int32_t)middle));
    if (found.count < most && found.weight < share) {
      high = middle;
      beyond_high = found.count;
    } else {
      low = middle;
      beyond_low = found.count;
    }
  }
  return next_logit(logits, count, float_at((int32_t)high));
}

/* The probabilities of the tokens, relative to that of the most probable one, whose logit is `highest`. */
static void weigh_tokens(const float *logits, int32_t count, float highest, float temperature, float *weights) {
  for (int32_t i = 0; i < count; i += LANES) {
    Vector here = {0};
    memcpy(&here, logits + i, sizeof(float) * (i + LANES <= count ? LANES : count - i));
    const Vector weight = exponential((here - all(highest)) / all(temperature));
    store(weights + i, either(here == all(-INFINITY), (Vector){0}, weight));
  }
}

static int64_t most_kept(const Truncation *by, int32_t count) {
  return by->top_k && by->top_k < count ? by->top_k : count;
}

/* Top-p of the weight of the tokens within top-k. */
static double share_of(const Truncation *by, const float *logits, const float *weights, int32_t count, float highest) {
  const int64_t most = most_kept(by, count);
  if (by->top_p >= 1) return INFINITY;
  const float least = most < count ? least_kept(logits, weights, count, highest, most, INFINITY) : -INFINITY;
  Above found = above(logits, weights, count, least);
  for (int32_t i = 0; i < count && found.count < most; i++)
    if (logits[i] == least) {
      found.count++;
      found.weight += weights[i];
    }
  return by->top_p * found.weight;
}

static Kept kept_tokens(const float *logits, int32_t count, const Truncation *by, float *weights) {
  const Scores own = {logits, NULL, 1};
  const float highest = highest_score(&own, count);
  const int64_t most = most_kept(by, count);
  if (highest != highest || (most == count && by->top_p >= 1)) return (Kept){-INFINITY, INT32_MAX};
  weigh_tokens(logits, count, highest, by->temperature, weights);
  const double share = share_of(by, logits, weights, count, highest);
  Kept kept = {least_kept(logits, weights, count, highest, most, share), -1};
  Above found = above(logits, weights, count, kept.least);
  for (int32_t i = 0; i < count && found.count < most && found.weight < share; i++)
    if (logits[i] == kept.least) {
      kept.last = i;
      found.count++;
      found.weight += weights[i];
    }
  return kept;
}

/* Noise */

#define GOLDEN 0x9E3779B97F4A7C15u /* of SplitMix64 */
#define HALF 0x3FE6A09E667F3BCD    /* bits of the square root of 1/2 */
#define MANTISSA 52                /* stored bits of the mantissa of a double */

/* Natural logarithm of positive normal numbers: a polynomial on [sqrt(1/2), sqrt(2)], as in fdlibm. */
INLINE Doubles logarithm(Doubles x) {
  const Longs exponent = ((Longs)x - HALF) >> MANTISSA;
  const Doubles rest = (Doubles)((Longs)x - (exponent << MANTISSA)) - 1.0;
  /* 2^52 + 2^51, whose mantissa holds integers of either sign. */
  const Doubles power = (Doubles)(exponent + 0x4338000000000000) - 6755399441055744.0;
  const Doubles s = rest / (rest + 2.0), z = s * s, half_square = 0.5 * rest * rest;
  Doubles sum = z * 1.479819860511658591e-01 + 1.531383769920937332e-01;
  sum = sum * z + 1.818357216161805012e-01;
  sum = sum * z + 2.222219843214978396e-01;
  sum = sum * z + 2.857142874366239149e-01;
  sum = sum * z + 3.999999999940941908e-01;
  sum = sum * z + 6.666666666666735130e-01;
  const Doubles below = s * (half_square + sum * z) + power * 1.90821492927058770002e-10;
  return power * 6.93147180369123816490e-01 - ((half_square - below) - rest);
}

/* SplitMix64's bits of counters, of which the upper ones are the mantissa of a number between 0 and 1. */
INLINE Doubles uniform(Counters counters) {
  Counters bits = (counters ^ (counters >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  bits = (bits ^ (bits >> 31)) >> (64 - MANTISSA);
  const Doubles whole = (Doubles)(bits | 0x4330000000000000) - 4503599627370496.0; /* 2^52 */
  return (whole + 0.5) * 0x1p-52;
}

/* Threads */

/* Computes parts of a step until none is left, and waits for those of other threads. Returns 0 if a helper waited so
 * long that it should leave the pass: somebody may need its core. */
static int share(Pass *pass, Step *step, int parts, const Layer *layer, int number, int thread, int *at) {
  if (!pass->counters) {
    for (int part = 0; part < parts; part++) step(pass, layer, number, part, 0);
    return 1;
  }
  atomic_int *claimed = pass->counters + (*at)++ * LINE, *done = claimed + 1;
  for (int part; (part = atomic_fetch_add_explicit(claimed, 1, memory_order_relaxed)) < parts;) {
    step(pass, layer, number, part, thread);
    atomic_fetch_add_explicit(done, 1, memory_order_release);
  }
  for (int turn = 1; atomic_load_explicit(done, memory_order_acquire) < parts; turn++) {
    pause_core();
    if (turn % SPINS == 0) {
      if (thread && turn == YIELDS * SPINS) return 0;
      yield_core();
    }
  }
  return 1;
}

static void compute(Pass *pass, int thread) {
  const Model *m = pass->model;
  const int rows = pass->rows, many = groups(rows), logits = rows - pass->first_logits;
  const int queries = m->groups * m->heads, up_parts = (int)(padded(m->inner) / COLUMNS) * many;
  int at = 0;
#define SHARE(step, parts, layer, number) \
  if (!share(pass, step, parts, layer, number, thread, &at)) return
  SHARE(embed, rows, NULL, 0);
  for (int number = 0; number < m->layer_count; number++) {
    const Layer *layer = m->layers + number;
    SHARE(norm_attention, rows, layer, number);
    SHARE(m->parallel ? inward_and_up : inward, layer->inward.panels * many + (m->parallel ? up_parts : 0), layer, number);
    SHARE(rotate_and_store, rows, layer, number);
    SHARE(attention, (rows + QUERIES - 1) / QUERIES * queries, layer, number);
    SHARE(m->parallel ? outward_and_down : outward, layer->outward.panels * many, layer, number);
    if (m->parallel) continue;
    SHARE(norm_mlp, rows, layer, number);
    SHARE(up, up_parts, layer, number);
    SHARE(down, layer->down.panels * many, layer, number);
  }
  SHARE(norm_last, logits, NULL, 0);
  SHARE(output, m->output.panels * groups(logits), NULL, 0);
#undef SHARE
}

/* Interface */

/* Identifies the source text. */
EXPORT int32_t dynatui_source(void) { return SOURCE; }

/* Columns of a panel and of a vector, counters of a step, and rows of a block of attention. */
EXPORT void dynatui_sizes(int32_t sizes[4]) {
  sizes[0] = COLUMNS;
  sizes[1] = LANES;
  sizes[2] = LINE;
  sizes[3] = QUERIES;
}

/* The CPU that runs this thread; -1 if unknown. */
EXPORT int32_t dynatui_cpu(void) { return this_cpu(); }

/* The `count` best tokens of each row by (logits + offsets) * factors, best first, of equal ones the one with the lower
 * id first; their log-probabilities; and those of the same tokens by the logits alone. */
EXPORT void dynatui_best(const float *logits, int64_t stride, int32_t row_count, int32_t vocabulary, const Best *best) {
  for (int row = 0; row < row_count; row++) {
    const Scores own = {logits + row * stride, NULL, 1};
    const Scores scores = {own.logits, best->offsets ? best->offsets[row] : NULL, best->factors ? best->factors[row] : 1};
    const Softmax all_tokens = softmax(&scores, vocabulary);
    const Softmax own_tokens = best->own_logprobs ? softmax(&own, vocabulary) : (Softmax){0};
    Ranked found = {INFINITY, -1};
    for (int64_t at = (int64_t)row * best->count; at < ((int64_t)row + 1) * best->count; at++) {
      found = next_best(&scores, vocabulary, found);
      best->tokens[at] = found.token;
      best->logprobs[at] = found.score - all_tokens.most - all_tokens.log_sum;
      if (best->own_logprobs) best->own_logprobs[at] = own.logits[found.token] - own_tokens.most - own_tokens.log_sum;
    }
  }
}

/* The best token of each row by logits plus offset, of equal ones the one with the lowest id; -1 for a row whose logits
 * leave no choice. `offsets` may be NULL. */
EXPORT void dynatui_choices(const float *logits, int64_t stride, const float *const *offsets, int32_t row_count,
                            int32_t vocabulary, int32_t *tokens) {
  for (int row = 0; row < row_count; row++) {
    const Scores own = {logits + row * stride, NULL, 1};
    const Scores scores = {own.logits, offsets ? offsets[row] : NULL, 1};
    const float most = highest_score(&own, vocabulary);
    tokens[row] = most != most ? -1 : next_best(&scores, vocabulary, (Ranked){INFINITY, -1}).token;
  }
}

/* Offsets, of which `penalty` is subtracted for the tokens that truncation excludes; of equally probable tokens those
 * with lower ids are kept first, and the most probable one always is. A row whose logits leave no choice keeps all. The
 * offsets may be NULL; `weights` has room for the vocabulary and one vector. */
EXPORT void dynatui_truncate(const float *logits, int64_t stride, const float *const *offsets,
                             const Truncation *truncations, int32_t row_count, int32_t vocabulary, float penalty,
                             float *weights, float *truncated) {
  for (int64_t row = 0; row < row_count; row++) {
    const float *own = logits + row * stride, *offset = offsets ? offsets[row] : NULL;
    const Kept kept = kept_tokens(own, vocabulary, truncations + row, weights);
    float *out = truncated + row * vocabulary;
    for (int32_t i = 0; i < vocabulary; i++) {
      const int excluded = own[i] < kept.least || (own[i] == kept.least && i > kept.last);
      out[i] = (offset ? offset[i] : 0) - (excluded ? penalty : 0);
    }
  }
}

/* The best token of a row by logits plus offset, of those that truncation keeps; -1 if the logits leave no choice. */
EXPORT int32_t dynatui_kept_choice(const float *logits, const float *offset, const Truncation *by, int32_t vocabulary,
                                   float *weights) {
  const Scores own = {logits, NULL, 1}, scores = {logits, offset, 1};
  const float highest = highest_score(&own, vocabulary);
  const int64_t most = most_kept(by, vocabulary);
  if (highest != highest) return -1;
  weigh_tokens(logits, vocabulary, highest, by->temperature, weights);
  const double share = share_of(by, logits, weights, vocabulary, highest);
  for (Ranked best = {INFINITY, -1};;) {
    best = next_best(&scores, vocabulary, best);
    const Above found = ahead(logits, weights, vocabulary, logits[best.token], best.token);
    if (found.count < most && found.weight < share) return best.token;
  }
}

/* Gumbel noise of a vocabulary's tokens, a row for each of the counters `starts`. */
EXPORT void dynatui_gumbel(const uint64_t *starts, int32_t row_count, int32_t vocabulary, float *noise) {
  for (int row = 0; row < row_count; row++) {
    Counters counters;
    for (int lane = 0; lane < LANES; lane++) counters[lane] = starts[row] + (lane + 1) * GOLDEN;
    for (int32_t i = 0; i < vocabulary; i += LANES, counters += LANES * GOLDEN) {
      const Vector here = __builtin_convertvector(-logarithm(-logarithm(uniform(counters))), Vector);
      const int32_t count = i + LANES <= vocabulary ? LANES : vocabulary - i;
      memcpy(noise + (int64_t)row * vocabulary + i, &here, count * sizeof(float));
    }
  }
}

/* Computes a pass; helpers may enter until it ends. */
EXPORT void dynatui_pass(Pass *pass) {
  if (pass->counters) atomic_store_explicit(&pass->gate.open, 1, memory_order_seq_cst);
  compute(pass, 0);
  if (pass->counters) {
    atomic_store_explicit(&pass->gate.open, 0, memory_order_seq_cst);
    for (int turn = 1; atomic_load_explicit(&pass->gate.inside, memory_order_seq_cst); turn++) {
      pause_core();
      if (turn % SPINS == 0) yield_core();
    }
  }
  const Model *m = pass->model;
  const int64_t stride = (int64_t)m->output.panels * COLUMNS;
  if (pass->best) dynatui_best(pass->logits, stride, pass->rows - pass->first_logits, m->vocabulary, pass->best);
}

/* Helps with a pass if it has begun and not ended. */
EXPORT void dynatui_help(Pass *pass, int32_t thread) {
  atomic_fetch_add_explicit(&pass->gate.inside, 1, memory_order_seq_cst);
  if (atomic_load_explicit(&pass->gate.open, memory_order_seq_cst)) compute(pass, thread);
  atomic_fetch_sub_explicit(&pass->gate.inside, 1, memory_order_seq_cst);
}

#include "growth.c"
