/* Growth of a draft tree: after a pass over one level, the children of its nodes and the nodes of the next pass.
 *
 * The rule is that of `decoder/draft/growth.py`, with the same arithmetic in double precision. A part of `passes.c`.
 */

typedef struct {
  double stop, deep, d0, tau_h, tau_l; /* as in `Growth` of `decoder/tree_rules.py` */
  double least;                        /* least log-probability of a path */
  double exponent, undrafted;          /* of the acceptance model */
  int32_t deepest, narrow, middle, wide, n_max;
  int32_t best, growing; /* whether the most probable nodes are kept; if so, most nodes of a level that get children */
  int32_t expected; /* whether log-probabilities are those of the acceptance model */
} GrowthRule;

typedef struct {
  GrowthRule rule;
  Pass *pass;
  const float *const *offsets; /* of each depth of the nodes of a pass, as in `Best`, or NULL */
  const float *factors;        /* likewise */
  const float **row_offsets;   /* [most_rows]; what `best` has as `offsets` */
  float *row_factors;          /* likewise */
  Best best;
  int32_t *tokens, *parents, *depths;    /* [nodes] */
  double *logprobs, *paths, *draft;      /* [nodes]; draft: of the draft alone, if the others differ from them */
  int32_t *rows;                         /* [nodes]; row after the text; -1 for nodes that no pass has read */
  int32_t *calls;                        /* [nodes]; number of rows of each pass */
  int32_t *level;                        /* [nodes]; nodes of the next pass */
  uint8_t *visible;                      /* [places] */
  int64_t text, nodes, places, most_keys; /* text: number of cached tokens before the tree */
  int32_t most_rows, depths_known;       /* of a pass, and of `factors` */
  int32_t count, passes, forwarded, level_count, lost;
} Growing;

static int32_t breadth(const GrowthRule *rule, double confidence) {
  if (confidence >= rule->tau_h) return rule->narrow;
  return confidence < rule->tau_l ? rule->wide : rule->middle;
}

/* Adds the children of a node, from a row of best tokens. */
static void add_children(Growing *g, int32_t parent, int32_t row) {
  const GrowthRule *rule = &g->rule;
  const Best *best = &g->best;
  const int64_t from = (int64_t)row * best->count;
  const float *scores = best->logprobs + from, *own = best->own_logprobs ? best->own_logprobs + from : scores;
  int32_t possible = 0;
  while (possible < best->count && isfinite(scores[possible])) possible++;
  if (!possible) {
    g->lost = 1;
    return;
  }
  double factor = 1, whole = 0;
  if (rule->expected) {
    double sum = exp(rule->undrafted);
    factor = rule->exponent;
    for (int32_t i = 0; i < possible; i++) sum += exp(factor * scores[i]);
    whole = log(sum);
  }
  int32_t room = breadth(rule, exp(factor * scores[0] - whole));
  if (!rule->best && room > rule->n_max + 1 - g->count) room = rule->n_max + 1 - g->count;
  if (room > possible) room = possible;
  for (int32_t i = 0; i < room; i++) {
    const double logprob = factor * scores[i] - whole, path = g->paths[parent] + logprob;
    if (path < rule->least) break;
    const int32_t node = g->count++;
    g->tokens[node] = best->tokens[from + i];
    g->parents[node] = parent;
    g->depths[node] = g->depths[parent] + 1;
    g->logprobs[node] = logprob;
    g->paths[node] = path;
    g->draft[node] = own[i];
    g->rows[node] = -1;
  }
}

/* Whether fewer than `most` of these nodes are more probable than one of them, of equal ones the earlier. */
static int among_best(const Growing *g, const int32_t *nodes, int32_t first, int32_t count, int32_t node, int32_t most) {
  int32_t better = 0;
  for (int32_t i = 0; i < count && better < most; i++) {
    const int32_t other = nodes ? nodes[i] : first + i;
    better += g->paths[other] > g->paths[node] || (g->paths[other] == g->paths[node] && other < node);
  }
  return better < most;
}

/* Selects the nodes of the next pass among the nodes from `first` on, which have one depth. */
static void choose_level(Growing *g, int32_t first) {
  const GrowthRule *rule = &g->rule;
  const int32_t depth = first < g->count ? g->depths[first] : rule->deepest;
  const double threshold = depth + 0.5 <= rule->d0 ? rule->stop : fmax(rule->stop, rule->deep);
  int32_t within = 0, growing = 0;
  g->level_count = 0;
  if (depth >= rule->deepest || (!rule->best && g->count > rule->n_max)) return;
  for (int32_t node = first; node < g->count; node++)
    /* A child, which is never more probable than its parent, may be among the most probable nodes. */
    if (!rule->best || g->count <= rule->n_max || among_best(g, NULL, 1, g->count - 1, node, rule->n_max - 1))
      g->level[within++] = node;
  if (rule->best && within > rule->growing) {
    uint8_t *chosen = g->visible; /* free until the next pass */
    for (int32_t i = 0; i < within; i++) chosen[i] = among_best(g, g->level, 0, within, g->level[i], rule->growing);
    for (int32_t i = 0; i < within; i++)
      if (chosen[i]) g->level[growing++] = g->level[i];
    within = growing;
  }
  for (int32_t i = 0; i < within; i++)
    if (threshold <= 0 || exp(g->paths[g->level[i]]) >= threshold) g->level[g->level_count++] = g->level[i];
}

/* Sets how the rows of a pass over nodes of one depth are ranked. */
static void set_rankings(Growing *g, int32_t rows, int32_t depth) {
  for (int32_t row = 0; row < rows; row++) {
    if (g->offsets) g->row_offsets[row] = g->offsets[depth];
    if (g->factors) g->row_factors[row] = g->factors[depth];
  }
  g->best.offsets = g->offsets ? g->row_offsets : NULL;
  g->best.factors = g->factors ? g->row_factors : NULL;
}

/* Begins a tree whose root is the last of `text` tokens, before the pass that reads it. */
EXPORT void dynatui_begin_tree(Growing *g, int64_t text, int32_t token) {
  g->text = text;
  g->count = 1;
  g->passes = g->forwarded = g->lost = 0;
  g->tokens[0] = token;
  g->parents[0] = g->rows[0] = -1;
  g->depths[0] = 0;
  g->logprobs[0] = g->paths[0] = g->draft[0] = 0;
  choose_level(g, 0);
  set_rankings(g, 1, 0);
}

/* Adds the children of the nodes of the latest pass; returns the number of nodes of the next one. */
static int32_t take_level(Growing *g) {
  const int32_t first = g->count, rows = g->level_count;
  for (int32_t row = 0; row < rows; row++) add_children(g, g->level[row], row);
  choose_level(g, first);
  return g->level_count;
}

/* Whether there is memory for the next pass and its children. */
static int fits(const Growing *g) {
  const int64_t rows = g->level_count, recent = g->forwarded + rows;
  return rows <= g->most_rows && g->text + recent <= g->most_keys && g->count + rows * g->rule.wide <= g->nodes &&
         g->depths[g->level[0]] < g->depths_known && rows * recent <= g->places;
}

/* Describes the next pass. */
EXPORT void dynatui_set_level(Growing *g) {
  Pass *pass = g->pass;
  const int32_t rows = g->level_count, recent = g->forwarded + rows, depth = g->depths[g->level[0]];
  memset(g->visible, 0, (int64_t)rows * recent);
  for (int32_t row = 0; row < rows; row++) {
    int32_t node = g->level[row];
    pass->tokens[row] = g->tokens[node];
    pass->positions[row] = (int32_t)(g->text - 1 + depth);
    g->rows[node] = g->forwarded + row;
    for (; node; node = g->parents[node]) g->visible[(int64_t)row * recent + g->rows[node]] = 1;
  }
  pass->visible = g->visible;
  pass->used = g->text + g->forwarded;
  pass->rows = rows;
  pass->recent = recent;
  pass->first_logits = 0;
  set_rankings(g, rows, depth);
  g->calls[g->passes++] = rows;
  g->forwarded = recent;
}

/* Continues a tree after a pass, with passes by this thread alone; returns the number of nodes of the next pass if there
 * is no memory for it, 0 if the tree is complete. */
EXPORT int32_t dynatui_grow(Growing *g) {
  g->pass->counters = NULL;
  while (take_level(g) && fits(g)) {
    dynatui_set_level(g);
    dynatui_pass(g->pass);
  }
  return g->level_count;
}
