#include <algorithm>
#include <cstring>
#include <thread>

#include "check.h"
#include "tiny_model.h"

namespace outpace::test {

using Ids = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;
using SharedSession = std::shared_ptr<Session>;

static Ids slice(const Ids& ids, int begin, int end) { return {ids.begin() + begin, ids.begin() + end}; }

static Ids chain_parents(int rows) {
  Ids parents(rows - 1);
  for (int i = 0; i < rows - 1; ++i) parents[i] = i - 1;
  return parents;
}

static Ids counted(int count) {
  Ids ids(count);
  for (int i = 0; i < count; ++i) ids[i] = i;
  return ids;
}

static Rows rows_of(const Floats& values, size_t first, size_t rows, size_t width) {
  Rows out;
  for (size_t i = first; i < first + rows; ++i)
    out.emplace_back(values.get() + i * width, values.get() + (i + 1) * width);
  return out;
}

static Rows score(Model& model, const SharedSession& session, const Ids& tokens, const Ids& parents) {
  const Outputs outputs = model.score({{session, tokens, parents}}, {});
  return rows_of(outputs.logits, 0, tokens.size(), model.config().vocab_size);
}

static Rows score_chain(Model& model, const SharedSession& session, const Ids& tokens) {
  return score(model, session, tokens, chain_parents(int(tokens.size())));
}

static SharedSession prefilled(Model& model, const Ids& tokens, int step = 1 << 20) {
  const SharedSession session = model.open();
  for (int at = 0; at < int(tokens.size()); at += step)
    model.prefill(session, slice(tokens, at, std::min(at + step, int(tokens.size()))), {});
  return session;
}

// One token at a time: what every other way is compared with.
static Rows plain(Model& model, const Ids& tokens) {
  const SharedSession session = model.open();
  Rows out;
  for (const int32_t token : tokens) {
    out.push_back(score_chain(model, session, {token})[0]);
    session->commit({});
  }
  return out;
}

static bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

static bool same(const Rows& a, const Rows& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same(x, y); });
}

// Every cached position's keys and values, layer by layer.
static std::vector<uint16_t> cached(const Session& session) {
  const CacheShape& shape = session.cache()->shape;
  const int blocks = (session.length() + kPagePositions - 1) / kPagePositions;
  std::vector<const uint16_t*> keys(blocks), values(blocks);
  std::vector<uint16_t> out;
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int head = 0; head < shape.kv_heads; ++head) {
      session.blocks(layer, head, blocks, keys.data(), values.data());
      for (int at = 0; at < session.length(); ++at)
        for (int d = 0; d < shape.head_dim; ++d) {
          const int block = at / kPagePositions, lane = at % kPagePositions;
          out.push_back(keys[block][d * kPagePositions + lane]);
          out.push_back(values[block][lane * shape.head_dim + d]);
        }
    }
  return out;
}

static TinyShape quantised() {
  TinyShape shape;
  shape.hidden_size = 256;
  shape.head_dim = 64;
  shape.ffn_size = 256;
  shape.formats = {Format::q4_k, Format::q8_0, Format::q6_k, Format::q4_1,
                   Format::bf16, Format::q5_0, Format::q4_0, Format::f16};
  shape.rope_interleaved = false;
  shape.biases = true;
  shape.tied = false;
  return shape;
}

TEST(model_gives_the_same_bits_on_every_instruction_set) {
  for (const TinyShape& shape : {TinyShape{}, quantised()}) {
    const Ids tokens = tiny_tokens(shape, 70);
    const auto reference = tiny_model(shape);
    const Rows expected = score_chain(*reference, reference->open(), tokens);
    for (const Kernels* kernels : available_kernels()) {
      const auto model = tiny_model(shape, 1, *kernels);
      CHECK(same(score_chain(*model, model->open(), tokens), expected));
    }
  }
}

TEST(model_gives_the_same_bits_for_any_number_of_threads) {
  TinyShape groups_of_three;  // which two threads must share
  groups_of_three.heads = 9, groups_of_three.kv_heads = 3, groups_of_three.head_dim = 64;
  groups_of_three.formats = {Format::q4_1};
  for (const TinyShape& shape : {quantised(), groups_of_three}) {
    const Ids tokens = tiny_tokens(shape, 70);
    const auto reference = tiny_model(shape);
    const Rows one_by_one = plain(*reference, slice(tokens, 0, 5));
    const Rows expected = score_chain(*reference, reference->open(), tokens);
    for (const int threads : {2, 3, 5}) {
      const auto model = tiny_model(shape, threads);
      CHECK(same(plain(*model, slice(tokens, 0, 5)), one_by_one));
      CHECK(same(score_chain(*model, model->open(), tokens), expected));
    }
  }
}

TEST(model_gives_the_same_bits_where_one_thread_takes_rows_of_the_others_heads) {
  TinyShape shape;
  shape.heads = 9, shape.kv_heads = 3, shape.head_dim = 64, shape.context = 400;
  const Ids prompt = tiny_tokens(shape, 310), tokens = tiny_tokens(shape, 16, 8);
  Ids tree = chain_parents(16);
  tree[5] = 1, tree[9] = -1;
  const Kernels& kernels = *available_kernels().front();
  const auto one = tiny_model(shape, 1, kernels), two = tiny_model(shape, 2, kernels);
  for (const Ids& parents : {chain_parents(16), tree}) {
    const Rows expected = score(*one, prefilled(*one, prompt), tokens, parents);
    CHECK(same(score(*two, prefilled(*two, prompt), tokens, parents), expected));
  }
}

TEST(model_gives_the_same_bits_for_a_prefill_in_any_slices) {
  const TinyShape shape;
  const auto model = tiny_model(shape, 2);
  const Ids tokens = tiny_tokens(shape, 150);
  const Rows expected = plain(*model, tokens);
  const SharedSession whole = prefilled(*model, slice(tokens, 0, 149));
  const std::vector<uint16_t> cache = cached(*whole);
  CHECK(same(score_chain(*model, whole, {tokens[149]})[0], expected[149]));
  for (const int step : {1, 7, 64}) {
    const SharedSession session = prefilled(*model, slice(tokens, 0, 149), step);
    CHECK(cached(*session) == cache);
    CHECK(same(score_chain(*model, session, {tokens[149]})[0], expected[149]));
  }
  CHECK(same(score_chain(*model, model->open(), tokens), expected));
}

TEST(model_prefills_more_rows_than_a_block_holds) {
  TinyShape shape;
  shape.context = 700;
  const auto model = tiny_model(shape, 2);
  const Ids tokens = tiny_tokens(shape, 600);
  CHECK(cached(*prefilled(*model, tokens)) == cached(*prefilled(*model, tokens, 100)));
}

TEST(model_scores_a_row_alone_as_among_fifteen_others) {
  const TinyShape shape = quantised();
  const auto model = tiny_model(shape, 2, choose_kernels());
  std::vector<Work> work;
  Rows expected;
  for (int i = 0; i < 16; ++i) {
    const Ids tokens = tiny_tokens(shape, 1 + 9 * i, 20 + i);
    expected.push_back(plain(*model, tokens).back());
    work.push_back({prefilled(*model, slice(tokens, 0, 9 * i)), {tokens.back()}, {}});
  }
  const Outputs outputs = model->score(work, {});
  CHECK(same(rows_of(outputs.logits, 0, 16, shape.vocab_size), expected));
}

// Nodes of a tree over three branches; its deepest path has five nodes.
static const Ids kTreeParents = {-1, -1, 0, 0, 2, 1, 4, 4, 6, 2, -1};

static Ids path_to(const Ids& parents, int node) {
  Ids path;
  for (; node >= 0; node = parents[node]) path.insert(path.begin(), node);
  return path;
}

TEST(model_scores_a_tree_path_as_a_chain) {
  const TinyShape shape;
  const auto model = tiny_model(shape, 2, choose_kernels());
  for (const int length : {0, 5, 59, 62, 63, 64, 126, 127}) {  // the tree begins, ends or crosses at a page's border
    const Ids prompt = tiny_tokens(shape, length + 1, 3), nodes = tiny_tokens(shape, int(kTreeParents.size()), 4);
    Ids tokens = {prompt.back()};
    tokens.insert(tokens.end(), nodes.begin(), nodes.end());
    const SharedSession base = prefilled(*model, slice(prompt, 0, length));
    for (int node = -1; node < int(nodes.size()); ++node) {
      const SharedSession tree = base->fork(length), chain = base->fork(length);
      const Ids path = path_to(kTreeParents, node);
      Ids along = {prompt.back()};
      for (const int at : path) along.push_back(nodes[at]);
      const Rows of_tree = score(*model, tree, tokens, kTreeParents);
      const Rows of_chain = score_chain(*model, chain, along);
      CHECK(same(of_tree[0], of_chain[0]));
      for (size_t i = 0; i < path.size(); ++i) CHECK(same(of_tree[path[i] + 1], of_chain[i + 1]));
      tree->commit(path);
      chain->commit(counted(int(path.size())));
      CHECK_EQUAL(tree->length(), length + 1 + int(path.size()));
      CHECK(tree->tokens() == chain->tokens());
      CHECK(cached(*tree) == cached(*chain));
    }
  }
}

TEST(model_scores_a_tree_wider_than_an_attention_task) {
  TinyShape shape;
  shape.context = 64;  // which its nodes' slots leave far behind
  const auto model = tiny_model(shape, 2);
  const Ids prompt = tiny_tokens(shape, 61, 5);
  Ids tokens = {prompt.back()}, parents;
  for (int i = 0; i < 80; ++i) parents.push_back(i < 40 ? -1 : i - 40);  // forty branches of two
  for (const int32_t token : tiny_tokens(shape, 80, 6)) tokens.push_back(token);
  const Rows rows = score(*model, prefilled(*model, slice(prompt, 0, 60)), tokens, parents);
  for (const int branch : {0, 17, 39}) {
    const SharedSession chain = prefilled(*model, slice(prompt, 0, 60));
    const Rows along = score_chain(*model, chain, {prompt.back(), tokens[branch + 1], tokens[branch + 41]});
    CHECK(same(rows[branch + 1], along[1]));
    CHECK(same(rows[branch + 41], along[2]));
  }
}

TEST(model_continues_a_fork_as_the_session_it_came_from) {
  const TinyShape shape;
  const auto model = tiny_model(shape, 2);
  const Ids tokens = tiny_tokens(shape, 150);
  const Rows expected = plain(*model, tokens);
  const SharedSession original = prefilled(*model, slice(tokens, 0, 140));
  const std::vector<uint16_t> before = cached(*original);
  for (const int length : {0, 1, 63, 64, 65, 128, 130, 140}) {
    const SharedSession fork = original->fork(length);
    const Ids other = tiny_tokens(shape, 30, 99);
    model->prefill(fork, other, {});  // into pages that the two share
    CHECK(cached(*original) == before);
    fork->rewind(length);
    model->prefill(fork, slice(tokens, length, 149), {});
    CHECK(same(score_chain(*model, fork, {tokens[149]})[0], expected[149]));
  }
  CHECK(cached(*original) == before);
}

TEST(model_rewinds_to_any_length) {
  const TinyShape shape;
  const auto model = tiny_model(shape);
  const Ids tokens = tiny_tokens(shape, 100);
  const Rows expected = plain(*model, tokens);
  const SharedSession session = prefilled(*model, tokens);
  for (const int length : {99, 64, 63, 10, 0}) {
    session->rewind(length);
    session->rewind(length);
    CHECK_EQUAL(session->length(), length);
    CHECK(same(score_chain(*model, session, {tokens[length]})[0], expected[length]));
  }
  CHECK_THROWS(session->rewind(1), std::invalid_argument);
  CHECK_THROWS(session->rewind(-1), std::invalid_argument);
}

TEST(model_taps_hidden_states_that_the_head_turns_into_the_logits) {
  const TinyShape shape = quantised();
  const auto model = tiny_model(shape, 2);
  const Ids tokens = tiny_tokens(shape, 9);
  const int last = shape.layers - 1;
  const Outputs outputs = model->score({{model->open(), tokens, chain_parents(9)}}, {last, 0, last});
  const Rows taps = rows_of(outputs.hidden, 0, 27, shape.hidden_size);
  std::vector<float> hidden;
  for (int row = 0; row < 9; ++row) {
    CHECK(same(taps[row * 3], taps[row * 3 + 2]));
    CHECK(!same(taps[row * 3], taps[row * 3 + 1]));
    hidden.insert(hidden.end(), taps[row * 3].begin(), taps[row * 3].end());
  }
  const Floats logits = model->head(hidden.data(), 9);
  CHECK(same(rows_of(logits, 0, 9, shape.vocab_size), rows_of(outputs.logits, 0, 9, shape.vocab_size)));
  const Outputs prefill = model->prefill(model->open(), tokens, {last, 0, last});
  CHECK(same(rows_of(prefill.hidden, 0, 27, shape.hidden_size), taps));
}

TEST(model_refuses_what_it_cannot_score) {
  const TinyShape shape;
  const auto model = tiny_model(shape), other = tiny_model(shape);
  const SharedSession session = model->open();
  const auto refused = [&](const Ids& tokens, const Ids& parents, const std::vector<int>& taps = {}) {
    CHECK_THROWS(model->score({{session, tokens, parents}}, taps), std::invalid_argument);
    CHECK_THROWS(session->commit({}), std::invalid_argument);
  };
  refused({}, {});
  refused({shape.vocab_size}, {});
  refused({-1}, {});
  refused({1, 2}, {});
  refused({1, 2}, {0});
  refused({1, 2}, {-2});
  refused({1}, {}, {shape.layers});
  refused({1}, {}, {-1});
  refused(Ids(shape.context + 1, 1), chain_parents(shape.context + 1));
  CHECK_THROWS(model->prefill(session, Ids(shape.context + 1, 1), {}), std::invalid_argument);
  CHECK_THROWS(model->score({{session, {1}, {}}, {session, {1}, {}}}, {}), std::invalid_argument);
  CHECK_THROWS(model->score({{other->open(), {1}, {}}}, {}), std::invalid_argument);
  CHECK_THROWS(model->embed({shape.vocab_size}), std::invalid_argument);
  CHECK_EQUAL(score_chain(*model, session, Ids(shape.context, 1)).size(), size_t(shape.context));
  session->close();
  CHECK_THROWS(model->score({{session, {1}, {}}}, {}), std::invalid_argument);
  CHECK_THROWS(session->fork(0), std::invalid_argument);
  session->close();
}

TEST(model_commits_paths_only) {
  const TinyShape shape;
  const auto model = tiny_model(shape);
  const SharedSession session = model->open();
  CHECK_THROWS(session->commit({}), std::invalid_argument);
  model->score({{session, {1, 2, 3, 4}, {-1, -1, 0}}}, {});
  for (const Ids& path : {Ids{2}, Ids{0, 1}, Ids{3}, Ids{-1}, Ids{0, 2, 2}})
    CHECK_THROWS(session->commit(path), std::invalid_argument);
  session->commit({0, 2});
  CHECK(session->tokens() == (Ids{1, 2, 4}));
  CHECK_THROWS(session->commit({}), std::invalid_argument);
}

TEST(model_gives_every_page_back) {
  const TinyShape shape;
  const auto model = tiny_model(shape);
  {
    const SharedSession session = prefilled(*model, tiny_tokens(shape, 130));
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(3));
    const SharedSession fork = session->fork(128);
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(3));
    model->prefill(fork, {1}, {});
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(4));
    session->close();
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(3));
    model->score({{fork, Ids(81, 1), Ids(80, -1)}}, {});  // slots as far as 209
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(4));
    fork->commit({79});
    CHECK_EQUAL(fork->length(), 131);
    CHECK_EQUAL(model->cache().pages_in_use(), size_t(3));
  }
  CHECK_EQUAL(model->cache().pages_in_use(), size_t(0));
  CHECK_EQUAL(model->cache().pages_free(), size_t(4));
}

TEST(model_serves_several_threads_of_the_caller) {
  const TinyShape shape;
  const auto model = tiny_model(shape, 2);
  const Ids tokens = tiny_tokens(shape, 20);
  const Rows expected = plain(*model, tokens);
  std::vector<std::thread> callers;
  std::vector<Rows> results(3);
  for (Rows& result : results) callers.emplace_back([&] {
    const SharedSession session = model->open();
    for (const int32_t token : tokens) {
      result.push_back(score_chain(*model, session, {token})[0]);
      const std::lock_guard lock(session->cache()->busy);
      session->commit({});
    }
  });
  for (std::thread& caller : callers) caller.join();
  for (const Rows& result : results) CHECK(same(result, expected));
}

}  // namespace outpace::test
