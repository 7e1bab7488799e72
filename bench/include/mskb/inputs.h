// Input generators that task cards name; the first argument is the buffer that is filled, by its number.
#pragma once

namespace mskb {

class Inputs; // inputs of one call, see input_set.h

// Uniform in [low, high). Where `outliers` is above 1, about four elements (at least one) at places that can't be
// guessed are larger: half to once `outliers` times the larger one of |low| and |high|, with the sign that they had. Most
// results of a product or a stencil do not use them, but lie beside some that do. A kernel that scales numbers by the
// largest one of a tile, a row or a block loses the others there.
void uniform(Inputs& inputs, int buffer, double low, double high, double outliers = 1);

// Uniform, but about one element in 256 (at least one) is 16 to 64 times the range, of either sign where `low` is
// negative: the sum is made by few elements at places that can't be guessed, so that sampling, a skipped block or
// a product rounded to fewer bits shows.
void spiked(Inputs& inputs, int buffer, double low, double high);

// The same, and eight elements at random places that are a 32nd to a tenth of length times the range each: one of
// them is several percent of the sum, so that sampling shows even where the result is rounded to eight bits.
void heavy_tailed(Inputs& inputs, int buffer, double low, double high);

// Uniform in [-1, 1), or where `percent` is not 0, ones among zeros: so many percent of the elements are 1.
void uniform_or_ones(Inputs& inputs, int buffer, double percent);

// Whole numbers of low .. high.
void integers(Inputs& inputs, int buffer, double low, double high);

// Positive numbers that sum to 1: half of the mass lies on at most eight elements at random places, the other half
// is spread so that every element has at least a quarter of 1 / length.
void distribution(Inputs& inputs, int buffer);

// N x N elements, uniform with variance 1/N: the spectral radius is near 1, so that powers neither overflow nor
// vanish (circular law). With `outliers` as those of `uniform`, powers overflow from some power on.
void spectral(Inputs& inputs, int buffer, double n, double outliers = 1);

// Sequences to sort. order 0: random; 1: few distinct values; 2: ascending; 3: descending; 4: all equal;
// 5: large and tiny magnitudes, infinities and both zeros.
void sequence(Inputs& inputs, int buffer, double order);

// A mask of seq_length x seq_length for every batch: 1 above the diagonal, 0 on it, below it 1 with a probability
// of `percent` percent and else 0.
void attention_mask(Inputs& inputs, int buffer, double seq_length, double percent);

// Structure of a CSR matrix: entries spread over the rows at random, every row at least one unless `empty_rows`;
// columns at random, so a row may repeat a column and is in no order. Where it is not 0, so many `heavy_rows` hold half
// of the entries, or as many as the other rows can spare, and half of the entries lie in so many `heavy_cols`. CSC with
// the roles exchanged.
void csr(Inputs& inputs, int row_offsets, int col_indices, double rows, double cols, double nnz,
         double empty_rows, double heavy_rows = 0, double heavy_cols = 0);

// The same in coordinates, the entries in no order.
void coo(Inputs& inputs, int row_indices, int col_indices, double rows, double cols, double nnz,
         double empty_rows, double heavy_rows = 0);

// An ELL matrix, rows x max_nnz_per_row, values uniform in [-1, 1), padding -1 in both arrays. The longest row has
// exactly max_nnz_per_row entries. `outliers` as those of `uniform`, among the entries.
void ell(Inputs& inputs, int col_ids, int values, double rows, double cols, double max_nnz_per_row,
         double nnz, double empty_rows, double heavy_rows = 0, double outliers = 1);

} // namespace mskb
