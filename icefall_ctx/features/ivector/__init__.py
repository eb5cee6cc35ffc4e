"""Who is speaking: i-vectors from a Gaussian mixture and a total variability model.

Stored or computed log-mel energies become frames (:mod:`.frontend`); a universal background
model is trained on them (:mod:`.ubm`); each utterance is summarised by its statistics against
that model (:mod:`.stats`), and the extractor (:mod:`.extractor`, :mod:`.total_variability`) maps
these to one short vector, which :mod:`.transforms` makes comparable between speakers.
:mod:`.stage` runs all of it over Lhotse manifests.
"""
