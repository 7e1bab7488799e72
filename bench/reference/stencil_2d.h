// Reference of stencil_2d in double precision: r times the differences to the four neighbours, added up one
// by one. The scale counts the point itself and all that r multiplies.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void stencil_2d_reference(mskb::Expected& u_new, const T* u_old, float r, int nx, int ny) {
    for (size_t e = 0; e < u_new.wanted.size(); ++e) {
        size_t p = u_new.wanted[e];
        long long i = p / ny, j = p % ny;
        double u = mskb::to_double(u_old[p]);
        double value = u, scale = std::abs(u);
        if (i != 0 && i != nx - 1 && j != 0 && j != ny - 1) {
            for (size_t neighbour : {p + ny, p + 1, p - 1, p - ny}) {
                double there = mskb::to_double(u_old[neighbour]);
                value += r * (there - u);
                scale += std::abs(r) * (std::abs(there) + std::abs(u));
            }
        }
        u_new.set(e, value, scale);
    }
}
