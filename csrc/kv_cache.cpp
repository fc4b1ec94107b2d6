#include "kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace outpace {

Page KvCache::take() {
  Memory memory(nullptr, std::free);
  {
    const std::lock_guard lock(mutex_);
    // The list's capacity covers every page there is, so that give_back never allocates.
    free_.reserve(in_use_ + 1 + free_.size());
    if (!free_.empty()) {
      memory = std::move(free_.back());
      free_.pop_back();
    }
    ++in_use_;
  }
  if (!memory) {
    const size_t bytes = (shape.page() * sizeof(uint16_t) + 63) / 64 * 64;
    memory.reset(static_cast<uint16_t*>(std::aligned_alloc(64, bytes)));
    if (!memory) {
      const std::lock_guard lock(mutex_);
      --in_use_;
      throw std::bad_alloc();
    }
    std::memset(memory.get(), 0, bytes);
  }
  uint16_t* data = memory.release();
  return Page(data, [self = shared_from_this()](uint16_t* page) { self->give_back(Memory(page, std::free)); });
}

void KvCache::give_back(Memory memory) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory));
  --in_use_;
}

size_t KvCache::pages_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

size_t KvCache::pages_free() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

void Session::require_open() const {
  if (closed()) throw std::invalid_argument("this session is closed");
}

static void check_length(int length, int held) {
  if (length < 0 || length > held)
    throw std::invalid_argument("length must be in [0, " + std::to_string(held) + "], got " + std::to_string(length));
}

static int pages_for(int positions) { return (positions + kPagePositions - 1) / kPagePositions; }

std::shared_ptr<Session> Session::fork(int length) const {
  require_open();
  check_length(length, this->length());
  auto copy = std::make_shared<Session>(cache_);
  copy->tokens_.assign(tokens_.begin(), tokens_.begin() + length);
  copy->pages_.assign(pages_.begin(), pages_.begin() + pages_for(length));
  return copy;
}

void Session::rewind(int length) {
  require_open();
  check_length(length, this->length());
  unstage();
  tokens_.resize(length);
  pages_.resize(pages_for(length));
}

void Session::close() {
  unstage();
  pages_.clear();
  tokens_.clear();
  closed_ = true;
}

void Session::make_room(int positions) {
  const int needed = pages_for(positions);
  const size_t tail = length() / kPagePositions;  // the first page that will be written to
  for (size_t i = tail; i < pages_.size(); ++i) {
    if (pages_[i].use_count() == 1) continue;
    Page own = cache_->take();
    std::memcpy(own.get(), pages_[i].get(), cache_->shape.page() * sizeof(uint16_t));
    pages_[i] = std::move(own);
  }
  while (int(pages_.size()) < needed) pages_.push_back(cache_->take());
}

void Session::unstage() {
  staged_tokens_.clear();
}

void Session::stage(std::vector<int32_t> tokens, std::vector<int32_t> parents) {
  require_open();
  unstage();
  const int rows = int(tokens.size());
  if (rows == 0) throw std::invalid_argument("at least one token is needed, the last committed one, got none");
  if (int(parents.size()) != rows - 1)
    throw std::invalid_argument("the tokens after the first need one parent each, got " + std::to_string(rows - 1) +
                                " tokens and " + std::to_string(parents.size()) + " parents");
  depths_.assign(rows, 0);
  is_chain_ = true;
  deepest_ = 0;
  for (int node = 0; node < rows - 1; ++node) {
    const int parent = parents[node];
    if (parent < -1 || parent >= node)
      throw std::invalid_argument("the parent of node " + std::to_string(node) + " must be in [-1, " +
                                  std::to_string(node) + "), got " + std::to_string(parent));
    depths_[node + 1] = depths_[parent + 1] + 1;
    deepest_ = std::max(deepest_, int(depths_[node + 1]));
    is_chain_ = is_chain_ && parent == node - 1;
  }
  if (last_position() >= cache_->context)
    throw std::invalid_argument(std::to_string(last_position() + 1) + " tokens do not fit in a context of " +
                                std::to_string(cache_->context));
  make_room(length() + rows);
  if (!is_chain_) {
    paths_.resize(size_t(rows) * deepest_);
    for (int row = 1; row < rows; ++row) {
      int* const path = paths_.data() + size_t(row) * deepest_;
      const int above = parents[row - 1] + 1;
      std::copy_n(paths_.data() + size_t(above) * deepest_, depths_[above], path);
      path[depths_[row] - 1] = length() + row;
    }
  }
  staged_tokens_ = std::move(tokens);
  parents_ = std::move(parents);
}

void Session::commit(const std::vector<int32_t>& path) {
  require_open();
  if (staged() == 0) throw std::invalid_argument("nothing was scored since the last commit");
  int above = -1;
  for (const int node : path) {
    if (node < 0 || node >= staged() - 1)
      throw std::invalid_argument("a path's nodes must be in [0, " + std::to_string(staged() - 1) + "), got " +
                                  std::to_string(node));
    if (parents_[node] != above)
      throw std::invalid_argument("a path must lead from parent to child, but node " + std::to_string(node) +
                                  " follows node " + std::to_string(parents_[node]) + ", not " + std::to_string(above));
    above = node;
  }
  for (size_t i = 0; i < path.size(); ++i)  // no node lies in the slot of an earlier one of its path
    if (path[i] != int(i)) move(length() + 1 + path[i], length() + 1 + int(i));
  tokens_.push_back(staged_tokens_[0]);
  for (const int node : path) tokens_.push_back(staged_tokens_[node + 1]);
  unstage();
  pages_.resize(pages_for(length()));
}

void Session::commit_all() {
  tokens_.insert(tokens_.end(), staged_tokens_.begin(), staged_tokens_.end());
  unstage();
}

void Session::store(int row, int layer, int head, const uint16_t* key, const uint16_t* value) {
  const CacheShape& shape = cache_->shape;
  const int slot = length() + row, lane = slot % kPagePositions;
  uint16_t* page = pages_[slot / kPagePositions].get();
  uint16_t* keys = page + shape.keys_at(layer, head) + lane;
  for (int i = 0; i < shape.head_dim; ++i) keys[size_t(i) * kPagePositions] = key[i];
  std::memcpy(page + shape.values_at(layer, head) + size_t(lane) * shape.head_dim, value,
              shape.head_dim * sizeof(uint16_t));
}

void Session::move(int from, int to) {
  const CacheShape& shape = cache_->shape;
  const int lane = from % kPagePositions, new_lane = to % kPagePositions;
  const uint16_t* const page = pages_[from / kPagePositions].get();
  uint16_t* const new_page = pages_[to / kPagePositions].get();
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int head = 0; head < shape.kv_heads; ++head) {
      const size_t keys = shape.keys_at(layer, head), values = shape.values_at(layer, head);
      for (size_t i = keys; i < values; i += kPagePositions) new_page[i + new_lane] = page[i + lane];
      std::memcpy(new_page + values + size_t(new_lane) * shape.head_dim, page + values + size_t(lane) * shape.head_dim,
                  shape.head_dim * sizeof(uint16_t));
    }
}

void Session::blocks(int layer, int head, int blocks, const uint16_t** keys, const uint16_t** values) const {
  const CacheShape& shape = cache_->shape;
  for (int i = 0; i < blocks; ++i) {
    keys[i] = pages_[i].get() + shape.keys_at(layer, head);
    values[i] = pages_[i].get() + shape.values_at(layer, head);
  }
}

}  // namespace outpace
